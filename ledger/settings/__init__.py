"""Settings: the operator's files. Where they lie, reading them, checking their tables.

    small_files  reading with a bound
    places       where the files lie
    toml_tables  `[[tables]]` of a TOML text, with the line of every problem
    names        who is behind a key, a host, a tag, a session or a project: person, team, cost
                 centre, each from a day on; history is named when a report asks
    names_file   the file that has them

In: a path or a name of a file. Out: values, and every mistake with its line.
Uses: model, text.
"""
