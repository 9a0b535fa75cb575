"""Text: words that operators type, and text shown to them.

    period     `last-month`, `7d` -> moments
    figures    money, counts, shares, durations as text
    printable  text without characters that control a terminal, and without passwords
    hints      what an error suggests: a word, a command
    origins    `https://host` -> `https://host:443`, and back

In and out: text and times. Pure.
Uses: model.
"""
