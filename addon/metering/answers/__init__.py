"""Answers: the bytes of one answer -> facts, usage and, where there is none, an estimate.

    decoding     decodes content-encodings in bounded pieces
    meter        decoding + framing + dialect -> facts
    backlog      bytes that the meter reads in several turns of the event loop
    templates    skips parsing frames that match earlier ones
    passed_text  how much text has passed, for an estimate
    estimate     token estimates for text without reported usage
    verbatim     the usage object as upstream wrote it

In: the bytes of one answer, in any chunks, and its dialect. Out: facts. Sans-IO.
Uses: dialects, framing; of the ledger: model.
"""
