"""Deploy: files for running Tokentee under Docker, Compose, systemd, Kubernetes, with Prometheus
and Grafana. `tokentee deploy KIND` writes them out of the installed package.

In: a kind and a folder. Out: files; nothing is started. The templates lie in `files`, the
dashboards are built from tables of queries.
Uses: nothing of ours.
"""
