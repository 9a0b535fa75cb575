"""Answers: the bytes of one answer -> facts, usage and, where there is none, an estimate.

    decoding     decodes content-encodings in bounded pieces
    meter        decoding + framing + dialect -> facts
    templates    skips frames that match earlier ones without a parse
    passed_text  how much text has passed, for an estimate
    estimate     tokens of a text that no provider counted
    verbatim     the usage object as upstream wrote it
    transcript   the answer as a person reads it

In: the bytes of one answer, in any chunks, and its dialect. Out: facts. Sans-IO.
Uses: usage_opt_in, dialects, framing, the ledger's model.
"""
