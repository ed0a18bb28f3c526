"""How many examples a property test draws."""

from hypothesis import settings


def examples(count: int, **others) -> settings:
    """Settings that draw `count` examples, and in `make quick` at most as many as it draws of any law."""
    if settings.get_current_profile_name() == "quick":
        count = min(count, settings.get_profile("quick").max_examples)
    return settings(max_examples=count, **others)
