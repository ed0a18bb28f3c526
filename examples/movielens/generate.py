"""Ratings with a known structure, in the files of MovieLens-100k: what the example runs on without a copy of it.

    write(Path("generated"), users=400, movies=300, seed=0)

Each movie has a quality and one to three genres; each user likes some genres and dislikes others, and grades more or less
kindly. A rating is quality + taste + kindness + noise, rounded to 1 to 5. How often a movie is rated has nothing to do with
its quality, so that popularity is a bad ranker, the mean rating of a movie a better one, and the best knows the user's taste:
from what they rated before, since most users of the last month are new. `truth` gives the rating without the noise.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

GENRES = (
    *(
        "unknown",
        "Action",
        "Adventure",
        "Animation",
        "Children's",
        "Comedy",
        "Crime",
        "Documentary",
        "Drama",
        "Fantasy",
    ),
    *("Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western"),
)
"""Those of MovieLens-100k, in the order of its flags."""
Ints = NDArray[np.int64]
FIRST, MONTHS = np.datetime64("1997-09-01", "s"), 8
MONTH_SECONDS = 30 * 86_400


def ratings(
    users: int, movies: int, seed: int
) -> tuple[Ints, Ints, Ints, Ints, NDArray[np.float64], NDArray[np.bool_]]:
    """Draw (user from 1, movie from 1, rating, seconds since 1970, truth, genres of the movies); [ratings] but the last."""
    rng = np.random.default_rng(seed)
    genres = rng.random((movies, len(GENRES))) < 0.06
    genres[np.arange(movies), rng.integers(1, len(GENRES), movies)] = True
    quality, kindness = rng.normal(0, 0.5, movies), rng.normal(0, 0.4, users)
    taste = rng.choice([-1.0, 1.0], (users, len(GENRES)))
    popular = rng.gamma(0.7, size=movies) + 0.02
    begin = rng.integers(0, MONTHS * MONTH_SECONDS - 86_400, users)
    user, movie, when = [], [], []
    for number in range(users):
        count = min(movies, 20 + int(rng.gamma(1.0, 50.0)))
        user.append(np.full(count, number))
        movie.append(rng.choice(movies, count, replace=False, p=popular / popular.sum()))
        when.append(begin[number] + np.sort(rng.integers(0, 7200, count)))
    u, m, t = np.concatenate(user), np.concatenate(movie), np.concatenate(when)
    liking = (genres[m] * taste[u]).sum(1) / np.sqrt(genres[m].sum(1))
    truth = 3.5 + quality[m] + kindness[u] + 0.8 * liking
    rating = np.clip(np.rint(truth + rng.normal(0, 0.6, len(u))), 1, 5).astype(np.int64)
    return u + 1, m + 1, rating, t + FIRST.astype(np.int64), truth, genres


def write(folder: Path, *, users: int = 600, movies: int = 400, seed: int = 0) -> None:
    """Write u.data, u.item and u.user as MovieLens-100k has them."""
    user, movie, rating, when, _, genres = ratings(users, movies, seed)
    rng = np.random.default_rng(seed + 1)
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["\t".join(map(str, row)) for row in zip(user, movie, rating, when, strict=True)]
    (folder / "u.data").write_text("\n".join(lines) + "\n")
    items = []
    for number, flags in enumerate(genres, start=1):
        year = int(rng.integers(1930, 1998))
        marks = "|".join("1" if flag else "0" for flag in flags)
        items.append(f"{number}|Movie {number} ({year})|01-Jan-{year}|||{marks}")
    (folder / "u.item").write_text("\n".join(items) + "\n", encoding="latin-1")
    people = [
        f"{number}|{rng.integers(10, 70)}|{rng.choice(['F', 'M'])}|{rng.choice(['artist', 'student', 'writer'])}|00000"
        for number in range(1, users + 1)
    ]
    (folder / "u.user").write_text("\n".join(people) + "\n")
