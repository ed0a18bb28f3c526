"""Records of runs as they lie in a store, whatever is in them."""

import json


def save_run(store, run):
    store.replace(store.runs_folder / f"{run['run']}.json", json.dumps(run))
