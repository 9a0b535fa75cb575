"""Call: the command line and the config file of `tokentee run`.

    arguments    words of the command line -> a call
    config_file  finds and reads the config file in force, and completes the call with it

An environment variable overrides the file, and an option overrides both. In: words, a file, the
environment. Out: options for the proxy, and the command to run.
Uses: of the ledger: model, settings, text.
"""
