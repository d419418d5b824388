#!/bin/sh
# Runs once, when the primary is initialised: standbys may connect, and from the next start on commits wait for one.
set -eu
echo "host replication all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
psql --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" \
    --command "ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (postgres1, postgres2)'"
