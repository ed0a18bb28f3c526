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
from flows.dashboard.pages.model_page import champion_of, spans_of
from flows.dashboard.pages.version_page import metric_table, standing
from flows.dashboard.request_checks import Access
from flows.execution.promotions import promote_version, roll_back
from flows.tell.ending import Ending
from flows.tell.parts import Part, Table
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
    version = registry.version(number)
    champion, _ = champion_of(registry)
    if champion is not None and champion.number == number:
        raise StoreError(f"version {number} is the champion already", where=model)
    sentences = [
        f"Version {number} was made on {when(version.created)} UTC from {window_text(spans_of(version)) or 'a run'}."
    ]
    if champion is None:
        sentences.append("There is no champion yet.")
    else:
        sentences.append(f"The champion is version {champion.number}. {standing(version, champion)}")
    sentences.append(_what_happens(opened, registry))
    gone = registry.rolled_back().get(number)
    force = f"Version {number} was rolled back {gone}. Promote it all the same." if gone else ""
    before = f" in place of version {champion.number}" if champion else ""
    heading = f"Make version {number} the champion of {model}{before}?"
    return _asking(opened, registry, PROMOTE, version, champion, heading, sentences, force, access)


def confirm_rollback(opened: OpenedStore, model: str, access: Access) -> Page | None:
    """The page that asks whether the champion before is to come back; None where there is no such model."""
    registry = opened.registry(model)
    if registry is None:
        return None
    champion, problem = champion_of(registry)
    before = registry.previous()
    if champion is None or before is None:
        fix = "promote a version by its number instead"
        raise StoreError(problem or f"{model} has no champion to go back to", where=str(registry.folder), fix=fix)
    version = registry.version(before)
    sentences = [
        f"Version {champion.number} stops being the champion; from then on it returns only by force.",
        f"Version {before}, the champion before it, comes back. It was made on {when(version.created)} UTC from "
        f"{window_text(spans_of(version)) or 'a run'}.",
        _what_happens(opened, registry),
    ]
    heading = f"Roll {model} back from version {champion.number} to version {before}?"
    return _asking(opened, registry, ROLLBACK, version, champion, heading, sentences, "", access)


def _asking(
    opened: OpenedStore,
    registry: Registry,
    kind: str,
    version: Version,
    champion: Version | None,
    heading: str,
    sentences: list[str],
    force: str,
    access: Access,
) -> Page:
    slug, model = opened.slug, registry.name
    against = champion.number if champion else NOBODY
    above = address(slug, "models", model)
    action = (
        address(slug, "models", model, "rollback")
        if kind == ROLLBACK
        else address(slug, "models", model, "versions", version.number, "promote")
    )
    form = Form(
        action=action,
        label=f"Roll back to version {version.number}" if kind == ROLLBACK else f"Promote version {version.number}",
        token=access.form_token(kind, slug, model, version.number, against),
        back=above,
        hidden={"version": str(version.number), "against": str(against)},
        force=force,
    )
    metrics = Table("Metrics of both", metric_table(version, champion))
    return Page(
        heading,
        heading,
        slug,
        "Overview",
        crumbs=[("Overview", address(slug)), (model, above)],
        parts=[Part("What changes", sentences, tables=[metrics])],
        form=form,
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
    above = address(opened.slug, "models", model)
    ending = Ending(word="not changed", tone="red", headline="Nothing was changed.", error=str(error))
    return Page(
        "Nothing was changed",
        f"{model}: nothing was changed",
        opened.slug,
        "Overview",
        crumbs=[("Overview", address(opened.slug)), (model, above)],
        ending=ending,
        every=0,
        status=409,
    )
