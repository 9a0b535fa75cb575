"""Call: what `tokentee run` is asked for, on its command line and in its config file.

    arguments    the words of the command line -> a call
    config_file  which config file is in force, and reading it
    settings     its text -> settings, with the line of every mistake
    words        settings -> words for the proxy's command line

An environment variable stands above the file, an option above both.
In: words, a file, the environment. Out: options for the proxy, and the command to run.
Uses: the ledger's model, text and settings.
"""
