"""A note on a column or on a run: a decision that Headway made by itself, or a fact that a person should know.

note = Note(column="zip", text="read as text: 3 of 100 sampled values begin with 0")
str(note)                                # column 'zip': read as text: ...
"""

from headway.config import Result


class Note(Result):
    text: str
    """The text of the note, without the column's name."""
    column: str | None = None
    left_out: bool = False
    """Whether the column is kept from the model. If so, the text says why."""
    doubt: bool = False
    """Whether the column may be meant in another way than Headway reads it."""

    def __str__(self) -> str:
        if self.column is None:
            return self.text
        return f"column {self.column!r}{' is left out' if self.left_out else ''}: {self.text}"
