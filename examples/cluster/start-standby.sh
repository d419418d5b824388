#!/bin/sh
# A standby of postgres1: its data is copied at the first start. Its cluster_name is what the primary knows it by.
set -eu
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    until pg_basebackup --dbname "host=postgres1 user=$PGUSER" --pgdata "$PGDATA" --write-recovery-conf; do
        rm -rf "${PGDATA:?}"/*
        sleep 1
    done
    chmod 0700 "$PGDATA"
fi
exec postgres -c cluster_name=postgres2
