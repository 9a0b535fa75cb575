"""Settings: the operator's files: their paths, reading them, validating their tables.

    small_files  reading with a bound
    places       where the files lie
    toml_tables  `[[tables]]` of a TOML text, with the line of every problem
    names        maps a key, host, tag, session or project to a person, team or cost centre,
                 each from a day on; a report applies names when it is made
    names_file   the names file
    extras       what this installation lacks, and the command that adds it

In: a path or a name of a file. Out: values, and every mistake with its line.
Uses: model, text.
"""
