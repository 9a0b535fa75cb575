"""Command: the environment, the process and the connections of the command.

    authorities        certificates that are trusted on the way out, and bundles for the command
    hosts              which hosts are decrypted, and the outbound proxy of the environment
    connection_policy  who may use the proxy, what is decrypted, and the outbound proxy
    child              the project of the command, its environment, and its process

In: the parent's environment and the command. Out: its exit code, and bypassed connections.
Uses: of the ledger: model, settings, text.
"""
