"""Pages: the ledger in a browser, as one HTML file (`report --html`) or live (`serve`).

    period      a time span, the span before it, its bars                      pure
    sums        cost and tokens by day and model, key, provider                database
    exchanges   single requests with their charge lines                        database
    problems    the problems of a period, and what to do about them            pure
    unusual     days that cost far more than the days before them              pure
    sections    the parts of a page, each queried separately                   database
    charts      data for the script that draws charts                          pure
    rendering   parts -> HTML, with Jinja2
    html_file   the whole page as one file
    live/       the live page: routes, access control, read-only access

In: a ledger and a scope. Out: HTML. Nothing here writes to a ledger.
Uses: commands, figures, model, parts.pages.live, pricing, reports, settings, store, store.engines,
store.schema, text.
"""
