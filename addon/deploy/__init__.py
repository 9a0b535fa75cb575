"""Deploy: files for running Tokentee under Docker, Compose, systemd, Kubernetes, with Prometheus
and Grafana. `tokentee deploy KIND` writes them out of the installed package.

    kinds              the files of each kind of deployment, Grafana's JSON among them; writes them
    files/             templates, and the panels over PostgreSQL and over Prometheus

In: a kind and a folder. Out: files; nothing is started.
Uses: of the ledger: settings.
"""
