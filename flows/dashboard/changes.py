"""The two changes that the dashboard can make, promote and rollback: a page that asks, and the change itself.

    page = confirm(opened, "flights", access, 3)
    event = changed(opened, "flights", PROMOTE, form, access, note)     # raises what the registry raises

The form holds what its reader saw: the champion that goes and the version that comes, sealed by a token made for just that. A
champion that somebody changed meanwhile makes the registry refuse it (`Overtaken`).
"""

from collections.abc import Callable, Mapping

from flows.dashboard.layout import Form, Page, address, crumbs_of
from flows.dashboard.opened_stores import OpenedStore
from flows.dashboard.pages.model_page import champion_of
from flows.dashboard.request_checks import Access
from flows.execution.promotions import promote_version, roll_back
from flows.tell.ending import Ending
from flows.tell.paired import against_part, spans_of
from flows.tell.rendering.parts import Part
from headway.errors import ConfigError, StoreError
from headway.messages import when, window_text
from headway.registry.registry import NOBODY, Event, Version

PROMOTE, ROLLBACK = "promote", "rollback"
ASKED = "asked for in the dashboard"
_MOST_REASON = 500


def confirm(opened: OpenedStore, model: str, access: Access, number: int | None = None) -> Page | None:
    """The page that asks whether a version is to become the champion; None where there is no such model.

    Args:
        number: the version; None: the champion before, by a rollback.
    """
    registry = opened.registry(model)
    if registry is None:
        return None
    champion, problem = champion_of(registry)
    if number is None:
        kind, action = ROLLBACK, address(opened.slug, "models", model, "rollback")
        if champion is None or (before := registry.previous()) is None:
            fix = "promote a version by its number instead"
            raise StoreError(problem or f"{model} has no champion to go back to", where=str(registry.folder), fix=fix)
        version, gone, label = registry.version(before), None, f"Roll back to version {before}"
        heading = f"Roll {model} back from version {champion.number} to version {before}?"
        said = [
            f"Version {champion.number} stops being the champion; from then on it returns only by force.",
            f"Version {before}, the champion before it, comes back. It {_made(version)}.",
        ]
    else:
        kind, action = PROMOTE, address(opened.slug, "models", model, "versions", number, "promote")
        if champion is not None and champion.number == number:
            raise StoreError(f"version {number} is the champion already", where=model)
        version, gone, label = registry.version(number), registry.rolled_back().get(number), f"Promote version {number}"
        before_it = f" in place of version {champion.number}" if champion else ""
        heading = f"Make version {number} the champion of {model}{before_it}?"
        is_champion = f"The champion is version {champion.number}." if champion else "There is no champion yet."
        said = [f"Version {number} {_made(version)}.", is_champion]
    said.append(
        "The history keeps who did it, when and why. headway serve and TensorFlow Serving load the new champion by themselves."
    )
    if model not in opened.pipelines:
        said[-1] += " An MLflow server is not told: start headway ui with the pipeline itself for that."
    against = champion.number if champion else NOBODY
    return Page(
        heading,
        heading,
        opened.slug,
        "Overview",
        crumbs=crumbs_of(opened.slug, model),
        parts=[Part("What changes", said), *([against_part(registry, version, champion)] if champion else [])],
        form=Form(
            action=action,
            label=label,
            token=access.form_token(kind, opened.slug, model, version.number, against),
            back=address(opened.slug, "models", model),
            hidden={"version": str(version.number), "against": str(against)},
            force=f"Version {number} was rolled back {gone}. Promote it all the same." if gone else "",
        ),
        every=0,
    )


def _made(version: Version) -> str:
    return f"was made on {when(version.created)} UTC from {window_text(spans_of(version)) or 'a run'}"


def changed(
    opened: OpenedStore, model: str, kind: str, form: Mapping[str, str], access: Access, note: Callable[[str], None]
) -> Event | None:
    """Do what a confirmed form says; None where there is no such model.

    Raises:
        ConfigError: the form is not one that this dashboard made for this change.
        StoreError, Overtaken: the registry refuses it.
    """
    registry = opened.registry(model)
    if registry is None:
        return None
    version, against = form.get("version", ""), form.get("against", "")
    if not access.is_form_token(form.get("token", ""), kind, opened.slug, model, version, against):
        fix = "go back, load the page anew, and confirm again"
        raise ConfigError("this form is of another page, or of a dashboard that has ended", where=model, fix=fix)
    reason = " ".join(form.get("reason", "").split())[:_MOST_REASON] or ASKED
    loaded = opened.pipelines.get(model)
    if kind == ROLLBACK:
        return roll_back(loaded, registry, version, reason=reason, seen=int(against), note=note)
    force = form.get("force") == "yes"
    return promote_version(loaded, registry, version, reason=reason, force=force, seen=int(against), note=note)


def refused(opened: OpenedStore, model: str, error: Exception) -> Page:
    """The page of a change that was not made."""
    said = "Nothing was changed"
    return Page(
        said,
        f"{model}: nothing was changed",
        opened.slug,
        "Overview",
        crumbs=crumbs_of(opened.slug, model),
        ending=Ending(word="not changed", tone="red", headline=f"{said}.", error=str(error)),
        every=0,
        status=409,
    )
