"""The encoding of a text file that is not UTF-8, by how its words look.

encoding_of("Größe;1".encode())              # None: UTF-8
encoding_of("Größe;1".encode("cp1252"))      # "cp1252"
encoding_of("Москва;1".encode("cp1251"))     # "cp1251"

A few words are enough: read in a wrong encoding of one byte per letter, a word has capitals in its middle, signs between its
letters, or not one plain letter. Turkish and Icelandic, whose bytes are the same, are told apart by how frequent letters are.
What no such encoding explains is left to the statistics of charset_normalizer.
"""

from __future__ import annotations

import math
import re
import unicodedata

from charset_normalizer import from_bytes

_SINGLE = ("cp1252", "cp1250", "cp1251", "cp1253", "koi8_r")
"""Of one byte per letter; the earlier one wins where two do equally well."""
_MULTIPLE = ("cp932", "euc_jp", "gb18030", "big5", "euc_kr")
_USUAL = "cp1252"
_MOSTLY = 0.8
"""The share of the words that must look like words."""
_SIGNS = 2
"""So many stand side by side."""
_ALONE = frozenset("àáâäåæèéêëìíîïòóôöøùúûüýÿ")
"""Letters that may be a word, as in French."""
_TURKISH = {"ý": 5.1, "ü": 1.9, "þ": 1.8, "ç": 1.2, "ð": 1.1, "ö": 0.8}
_ICELANDIC = {"ð": 4.4, "á": 1.8, "í": 1.6, "þ": 1.5, "ó": 1.0, "æ": 0.9, "ö": 0.8, "é": 0.6, "ú": 0.6, "ý": 0.2}
"""Percent of the letters of a language (Wikipedia, "Letter frequency"), as cp1252 reads them: Turkish ğ, ı, ş are its ð, ý, þ."""
_WORD = re.compile(r"[^\x00-@\[-`{-\x7f]*[^\x00-\x7f][^\x00-@\[-`{-\x7f]*")
"""Plain letters and others side by side, with one at least that is not plain."""


def encoding_of(data: bytes) -> str | None:
    """The encoding of the beginning of a file; None for UTF-8, single values aside."""
    text = data.decode("utf-8", "replace").rstrip("\ufffd")  # it may be cut off within a letter
    wrong = text.count("\ufffd")
    if not wrong or sum(letter > "\x7f" for letter in text) >= 2 * wrong:  # else single bad values
        return None
    ranks = {encoding: _rank(data, encoding) for encoding in _SINGLE}
    best = max(ranks, key=lambda encoding: ranks[encoding])
    if ranks[best][0] >= _MOSTLY:
        return _western(data) if best == _USUAL else best
    found = from_bytes(data, cp_isolation=[*_MULTIPLE], enable_fallback=False).best()
    return _USUAL if found is None else found.encoding


def _western(data: bytes) -> str:
    """cp1254 for Turkish, else cp1252: they differ in six letters, of which each is far more frequent in one language."""
    text = "".join({*_WORD.findall(data.decode(_USUAL).lower())})
    counts = {letter: text.count(letter) for letter in _TURKISH.keys() | _ICELANDIC.keys()}
    if not any(counts[letter] for letter in "ðýþ"):
        return _USUAL
    rare = 0.01
    turkish = sum(n * math.log(_TURKISH.get(x, rare) / _ICELANDIC.get(x, rare)) for x, n in counts.items())
    return "cp1254" if turkish > 0 else _USUAL


def _rank(data: bytes, encoding: str) -> tuple[float, float]:
    """(the share of the words that look like words, the share of those in lower case); (0, 0) where it cannot be."""
    try:
        words = {*_WORD.findall(data.decode(encoding))}
    except UnicodeDecodeError:
        return 0.0, 0.0
    good = [word for word in words if _is_word(word, latin=encoding in ("cp1252", "cp1250"))]
    return len(good) / len(words), sum(not word.isupper() for word in good) / len(words)


def _is_word(word: str, *, latin: bool) -> bool:
    """Whether it is written as people write: a sign alone, or letters of one script, the first or all of them capitals."""
    kinds = ["$" if (kind := unicodedata.category(character)) == "Sc" else kind[0] for character in word]
    if "L" not in kinds:
        return latin and len(word) <= _SIGNS
    first, last = kinds.index("L"), len(kinds) - kinds[::-1].index("L")
    letters = word[first:last]
    scripts = {unicodedata.name(letter).partition(" ")[0] for letter in letters}
    if set(kinds[:first]) - {"P"} or set(kinds[first:last]) != {"L"} or "$" in kinds[last:] or len(scripts) > 1:
        return False
    plain = any(letter.isascii() for letter in letters)
    cased = letters.islower() or letters.isupper() or (letters[0].isupper() and letters[1:].islower())
    return cased and (plain or letters in _ALONE if latin else not plain)
