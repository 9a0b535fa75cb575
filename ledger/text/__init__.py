"""Text: words that operators type, and text shown to them.

    period     `last-month`, `7d` -> moments
    nearest    the known word that is nearest to a mistyped one
    figures    money, counts, shares as text; durations has times
    printable  text without characters that control a terminal
    passwords  text without passwords
    origins    `https://host` -> `https://host:443`, and back
    extras     which optional package is missing, and how to install it

In and out: text and times. Pure.
Uses: model.
"""
