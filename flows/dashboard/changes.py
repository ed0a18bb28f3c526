"""The two changes that the dashboard can make, promote and rollback: a page that asks, and the change itself.

    page = confirm_promotion(opened, "flights", 3, access)
    change = promotion(opened, "flights", 3, form, access)      # the Event; raises what the registry raises

The form holds what its reader saw: the champion that goes and the version that comes, sealed by a token made for just that. A
champion that somebody changed meanwhile makes the registry refuse it (`Overtaken`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from flows.dashboard.layout import Form, Page, address, when
from flows.dashboard.opened_stores import OpenedStore
from flows.dashboard.pages.model_page import champion_of
from flows.dashboard.request_checks import Access
from flows.execution.promotions import promote_version, roll_back
from flows.tell.ending import Ending
from flows.tell.paired import against_part, spans_of
from flows.tell.rendering.parts import Part
from headway.errors import ConfigError, StoreError
from headway.messages import window_text
from headway.registry.registry import NOBODY, Event, Registry, Version

PROMOTE, ROLLBACK = "promote", "rollback"
ASKED = "asked for in the dashboard"
_MOST_REASON = 500


def confirm_promotion(opened: OpenedStore, model: str, number: int, access: Access) -> Page | None:
    """The page that asks whether a version is to become the champion; None where there is no such model."""
    registry = opened.registry(model)
    if registry is None:
        return None
    version, (champion, _) = registry.version(number), champion_of(registry)
    if champion is not None and champion.number == number:
        raise StoreError(f"version {number} is the champion already", where=model)
    is_champion = f"The champion is version {champion.number}." if champion else "There is no champion yet."
    before = f" in place of version {champion.number}" if champion else ""
    gone = registry.rolled_back().get(number)
    return _asking(
        opened,
        registry,
        version,
        champion,
        heading=f"Make version {number} the champion of {model}{before}?",
        sentences=[f"Version {number} {_made(version)}.", is_champion],
        force=f"Version {number} was rolled back {gone}. Promote it all the same." if gone else "",
        change=(PROMOTE, f"Promote version {number}", ("versions", number, "promote")),
        access=access,
    )


def confirm_rollback(opened: OpenedStore, model: str, access: Access) -> Page | None:
    """The page that asks whether the champion before is to come back; None where there is no such model."""
    registry = opened.registry(model)
    if registry is None:
        return None
    (champion, problem), before = champion_of(registry), registry.previous()
    if champion is None or before is None:
        fix = "promote a version by its number instead"
        raise StoreError(problem or f"{model} has no champion to go back to", where=str(registry.folder), fix=fix)
    version = registry.version(before)
    sentences = [
        f"Version {champion.number} stops being the champion; from then on it returns only by force.",
        f"Version {before}, the champion before it, comes back. It {_made(version)}.",
    ]
    return _asking(
        opened,
        registry,
        version,
        champion,
        heading=f"Roll {model} back from version {champion.number} to version {before}?",
        sentences=sentences,
        force="",
        change=(ROLLBACK, f"Roll back to version {before}", ("rollback",)),
        access=access,
    )


def _made(version: Version) -> str:
    return f"was made on {when(version.created)} UTC from {window_text(spans_of(version)) or 'a run'}"


def _asking(
    opened: OpenedStore,
    registry: Registry,
    version: Version,
    champion: Version | None,
    *,
    heading: str,
    sentences: list[str],
    force: str,
    change: tuple[str, str, tuple[object, ...]],
    access: Access,
) -> Page:
    """The page that asks.

    Args:
        change: what it is called, the button's label, and the end of the form's address.
    """
    slug, model, (kind, label, action) = opened.slug, registry.name, change
    against = champion.number if champion else NOBODY
    above = address(slug, "models", model)
    parts = [Part("What changes", [*sentences, _what_happens(opened, registry)])]
    return Page(
        heading,
        heading,
        slug,
        "Overview",
        crumbs=[("Overview", address(slug)), (model, above)],
        parts=[*parts, *([against_part(registry, version, champion)] if champion else [])],
        form=Form(
            action=address(slug, "models", model, *action),
            label=label,
            token=access.form_token(kind, slug, model, version.number, against),
            back=above,
            hidden={"version": str(version.number), "against": str(against)},
            force=force,
        ),
        every=0,
    )


def _what_happens(opened: OpenedStore, registry: Registry) -> str:
    said = "The history keeps who did it, when and why. headway serve and TensorFlow Serving load the new champion by themselves."
    if registry.name not in opened.pipelines:
        said += " An MLflow server is not told: start headway ui with the pipeline itself for that."
    return said


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
    said, slug = "Nothing was changed", opened.slug
    return Page(
        said,
        f"{model}: nothing was changed",
        slug,
        "Overview",
        crumbs=[("Overview", address(slug)), (model, address(slug, "models", model))],
        ending=Ending(word="not changed", tone="red", headline=f"{said}.", error=str(error)),
        every=0,
        status=409,
    )
