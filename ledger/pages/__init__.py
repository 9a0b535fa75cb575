"""Pages: the ledger in a browser, as one HTML file (`report --html`) or live (`serve`).

    period      which stretch of time, the one before it, its bars             pure
    sums        cost and tokens by day and model, key, provider                database
    exchanges   single requests with their charge lines                        database
    problems    what is wrong in a period, and what to do about it             pure
    unusual     days that differ from the same weekday of the weeks before     pure
    figures     how figures are written                                        pure
    sections    the parts of a page, each asked for on its own                 database
    charts      what the script draws                                          pure
    rendering   parts -> HTML, with Jinja2
    html_file   the whole page as one file
    spools      what the spools of this machine have not shipped yet           database
    live/       the live page: routes, who may ask, read-only access

In: a ledger and a scope. Out: HTML. Nothing here writes to a ledger.
Uses: reports and what they use.
"""
