"""Tables of StatLib and agriculture as ARFF files, kept for judging: bench/models.py reads them from a folder that it is told.

    git clone https://github.com/renatopp/arff-datasets
    python bench/models.py --arff arff-datasets --tables eucalyptus no2 wind

Of the collection's tables these are all with 150 rows, two features and a natural label, without time series, and without tables
that are others in another form. They were written down before a model was trained on any of them.
"""

from __future__ import annotations

import io
import re
from pathlib import Path

import pandas as pd
from packaged_tables import LOADERS, Table

MOST_ROWS = 5_000
"""Of longer tables so many rows are drawn."""

ATTRIBUTE = re.compile(r"""@attribute\s+(?:'([^']*)'|"([^"]*)"|(\S+))""", re.IGNORECASE)


def statlib(folder: Path) -> dict[str, Table]:
    """The tables in a copy of the collection."""
    return {
        name: Table(f"arff:{folder / file}", label, tuple(without.split()), seen=False, most_rows=MOST_ROWS)
        for name, (file, label, without) in STATLIB.items()
    }


def read(file: str) -> pd.DataFrame:
    """Return the rows of an ARFF file; a column without any value is left out."""
    head, _, rows = re.split(r"(?im)^(@data)\b.*$", Path(file).read_text("latin-1"), maxsplit=1)
    names = [next(filter(None, found)) for found in ATTRIBUTE.findall(re.sub(r"(?m)^%.*$", "", head))]
    lines = [line.strip() for line in rows.splitlines() if line.strip() and not line.lstrip().startswith("%")]
    text = io.StringIO("\n".join(lines))
    frame = pd.read_csv(
        text, header=None, names=names, na_values="?", skipinitialspace=True, quotechar="'", index_col=False
    )
    return frame.dropna(axis=1, how="all")


STATLIB: dict[str, tuple[str, str, str]] = {
    "eucalyptus": ("agridata/eucalyptus.arff", "Utility", ""),
    "grub": ("agridata/grub.damage.arff", "GG_new", ""),
    "authorship": ("statlib/nominal/analcatdata_authorship.arff", "Author", "BookID"),
    "brazil": ("statlib/nominal/analcatdata_braziltourism.arff", "Trips", ""),
    "dmft": ("statlib/nominal/analcatdata_dmft.arff", "Prevention", ""),
    "halloffame": ("statlib/nominal/analcatdata_halloffame.arff", "Hall_of_Fame", "Player"),
    "lawsuit": ("statlib/nominal/analcatdata_lawsuit.arff", "Laid.off", ""),
    "marketing": ("statlib/nominal/analcatdata_marketing.arff", "X9", ""),
    "reviewer": ("statlib/nominal/analcatdata_reviewer.arff", "Peter_Travers", "Film"),
    "birthday": ("statlib/nominal/analcatdata_birthday.arff", "Births", ""),
    "backache": ("statlib/nominal/backache.arff", "col_33", ""),
    "biomed": ("statlib/nominal/biomed.arff", "class", ""),
    "carsorigin": ("statlib/nominal/cars.arff", "origin", ""),
    "collins": ("statlib/nominal/collins.arff", "Genre", "Counter Corp.Genre Corpus"),
    "irish": ("statlib/nominal/irish.arff", "Leaving_Certificate", ""),
    "crabs": ("statlib/nominal/prnn_crabs.arff", "sex", "index"),
    "fglass": ("statlib/nominal/prnn_fglass.arff", "type", ""),
    "synth": ("statlib/nominal/prnn_synth.arff", "yc", ""),
    "profb": ("statlib/nominal/profb.arff", "Home/Away", ""),
    "schizo": ("statlib/nominal/schizo.arff", "class", "ID"),
    "supreme": ("statlib/numeric/analcatdata_supreme.arff", "Log_exposure", ""),
    "wildcat": ("statlib/numeric/analcatdata_wildcat.arff", "Wildcat_strikes", ""),
    "bodyfat": (
        "statlib/numeric/bodyfat.arff",
        "Percent_body_fat_from_Siris_(1956)_equation",
        "Density_determined_from_underwater_weighing",
    ),
    "chatfield": ("statlib/numeric/chatfield_4.arff", "col_13", ""),
    "chapman": ("statlib/numeric/christensen-llm_chapman.arff", "col_8", "col_1"),
    "trauma": ("statlib/numeric/christensen-llm_trauma.arff", "DEATH", "ID"),
    "aaup": (
        "statlib/numeric/colleges_aaup.arff",
        "Average_salary-full_professors",
        "FICE College_name Average_salary-all_ranks Average_compensation-all_ranks Average_compensation-full_professors",
    ),
    "usnews": ("statlib/numeric/colleges_usnews.arff", "Graduation_rate", "FICE College_name"),
    "wages": ("statlib/numeric/cps_85_wages.arff", "WAGE", ""),
    "bird": ("statlib/numeric/csb_ch9.arff", "OUTCOME", ""),
    "disclosure": ("statlib/numeric/disclosure_z.arff", "Income", ""),
    "mu284": ("statlib/numeric/mu284.arff", "RMT85", "LABEL"),
    "no2": ("statlib/numeric/no2.arff", "no2_concentration", ""),
    "pm10": ("statlib/numeric/pm10.arff", "pm10_concentration", ""),
    "places": ("statlib/numeric/places.arff", "Housing", "Place"),
    "retinol": ("statlib/numeric/plasma_retinol.arff", "RETPLASMA", ""),
    "pollen": ("statlib/numeric/pollen.arff", "DENSITY", "OBSERVATION_NUMBER"),
    "ladata": (
        "statlib/numeric/rmftsa_ladata.arff",
        "Total_Mortality",
        "Respiratory_Mortality Cardiovascular_Mortality",
    ),
    "washington": ("statlib/numeric/rmftsa_mtwashnh6597.arff", "Wnd", "Date"),
    "sleep": ("statlib/numeric/rmftsa_sleepdata.arff", "sleep_state", ""),
    "socmob": ("statlib/numeric/socmob.arff", "counts_for_sons_current_occupation", ""),
    "space": ("statlib/numeric/space_ga.arff", "ln(VOTES/POP)", ""),
    "strikes": ("statlib/numeric/strikes.arff", "strike_volume", ""),
    "tecator": ("statlib/numeric/tecator.arff", "fat", "moisture protein"),
    "galaxy": ("statlib/numeric/visualizing_galaxy.arff", "velocity", ""),
    "soil": ("statlib/numeric/visualizing_soil.arff", "resistivity", ""),
    "wind": ("statlib/numeric/wind.arff", "MAL", ""),
}
"""The file of each table, its label, and the columns that are left out: what numbers rows, or is the label in another form."""
LOADERS["arff"] = read
