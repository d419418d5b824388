"""The requests of the control API: the function of each, and which of them change something. Imported with the first
request that needs a key: these functions are most of the door, and the health of a server is asked for more often.
"""

from __future__ import annotations

from typing import Final

from armillary.doors.control import (
    captures,
    changes,
    cluster,
    migrations,
    partitions,
    reshapes,
    resources,
    scripts,
)
from armillary.doors.control.access import session
from armillary.doors.control.call import Action, Routes
from armillary.doors.control.figures import load_maps, samples, verdicts
from armillary.doors.control.foresight import advice_requests as advice
from armillary.doors.control.foresight import item_samples
from armillary.doors.control.foresight import requests as foresight
from armillary.doors.control.live import server, watch
from armillary.doors.control.metrics import metrics
from armillary.doors.control.snapshots import snapshots
from armillary.doors.control.testing import clock_control, faults

_ACTIONS: tuple[tuple[str, str, Action], ...] = (
    ("GET", "health", server.health),
    ("GET", "ready", server.ready),
    ("GET", "session", session.show_session),
    ("POST", "session", session.log_in),
    ("DELETE", "session", session.log_out),
    ("GET", "session/log-ins", session.list_log_ins),
    ("POST", "session/tickets", session.make_ticket),
    ("GET", "server", server.show_server),
    ("GET", "watch", watch.watch),
    ("GET", "events", watch.list_events),
    ("GET", "metrics", metrics.read_metrics),
    ("GET", "databases", resources.list_databases),
    ("POST", "databases", resources.create_database),
    ("GET", "databases/{}", resources.show_database),
    ("DELETE", "databases/{}", resources.delete_database),
    ("PUT", "databases/{}/throughput", resources.scale_database),
    ("GET", "containers", resources.list_all_containers),
    ("GET", "databases/{}/containers", resources.list_containers),
    ("POST", "databases/{}/containers", resources.create_container),
    ("GET", "databases/{}/containers/{}", resources.show_container),
    ("DELETE", "databases/{}/containers/{}", resources.delete_container),
    ("PUT", "databases/{}/containers/{}/throughput", resources.scale_container),
    ("GET", "databases/{}/containers/{}/throughput/preview", load_maps.preview_throughput),
    ("PUT", "databases/{}/containers/{}/mode", resources.set_mode),
    ("PUT", "databases/{}/containers/{}/buckets", resources.set_buckets),
    ("GET", "databases/{}/containers/{}/partitions", partitions.show_partitions),
    ("GET", "databases/{}/containers/{}/keys", partitions.show_keys),
    ("GET", "databases/{}/containers/{}/verdict", verdicts.show_verdict),
    ("GET", "databases/{}/containers/{}/history", load_maps.show_history),
    ("GET", "databases/{}/containers/{}/heat", load_maps.show_heat),
    ("GET", "databases/{}/containers/{}/sample", samples.show_sample),
    ("GET", "databases/{}/containers/{}/sample/keys", samples.preview_partition_key),
    ("GET", "databases/{}/containers/{}/sample/figures", item_samples.show_figures),
    ("GET", "databases/{}/containers/{}/sample/items", item_samples.send_items),
    ("POST", "databases/{}/containers/{}/parse", samples.parse),
    ("GET", "databases/{}/containers/{}/changes", changes.show_changes),
    ("POST", "databases/{}/containers/{}/split", reshapes.split),
    ("POST", "databases/{}/containers/{}/merge", reshapes.merge),
    ("GET", "databases/{}/containers/{}/reshapes", reshapes.list_reshapes),
    ("POST", "databases/{}/containers/{}/reshapes/{}/advance", reshapes.advance),
    ("DELETE", "databases/{}/containers/{}/reshapes/{}", reshapes.cancel_reshape),
    ("POST", "databases/{}/containers/{}/migration", migrations.begin),
    ("GET", "databases/{}/containers/{}/migration", migrations.show),
    ("DELETE", "databases/{}/containers/{}/migration", migrations.stop),
    ("GET", "databases/{}/containers/{}/captures", captures.list_captures),
    ("POST", "databases/{}/containers/{}/captures", captures.start_capture),
    ("GET", "databases/{}/containers/{}/captures/{}", captures.show_capture),
    ("DELETE", "databases/{}/containers/{}/captures/{}", captures.delete_capture),
    ("POST", "databases/{}/containers/{}/captures/{}/stop", captures.stop_capture),
    ("POST", "databases/{}/containers/{}/captures/{}/secret", captures.tell_secret),
    ("GET", "databases/{}/containers/{}/captures/{}/parts/{}", captures.send_part),
    ("GET", "databases/{}/containers/{}/scripts", scripts.list_scripts),
    ("GET", "databases/{}/containers/{}/scripts/{}/{}", scripts.show_script),
    ("PUT", "databases/{}/containers/{}/scripts/{}/{}", scripts.put_script),
    ("DELETE", "databases/{}/containers/{}/scripts/{}/{}", scripts.delete_script),
    ("POST", "databases/{}/containers/{}/scripts/procedures/{}/run", scripts.run_procedure),
    ("POST", "estimate", foresight.make_estimate),
    ("POST", "simulations", foresight.begin_simulation),
    ("POST", "advice", advice.begin_advice),
    ("POST", "uploads", advice.begin_upload),
    ("PUT", "uploads/{}/parts/{}", advice.receive_part),
    ("DELETE", "uploads/{}", advice.cancel_upload),
    ("GET", "jobs/{}", foresight.show_job),
    ("DELETE", "jobs/{}", foresight.cancel_job),
    ("GET", "reshapes", reshapes.list_all_reshapes),
    ("PUT", "reshapes/pauses", reshapes.pause),
    ("POST", "reshapes/advance", reshapes.advance),
    ("GET", "faults", faults.list_rules),
    ("POST", "faults", faults.create_rule),
    ("DELETE", "faults", faults.delete_rules),
    ("GET", "faults/{}", faults.show_rule),
    ("DELETE", "faults/{}", faults.delete_rule),
    ("GET", "account/keys", server.list_keys),
    ("POST", "account/keys/{}/regenerate", server.regenerate_key),
    ("GET", "account/connection-strings", server.list_connection_strings),
    ("GET", "snapshots", snapshots.list_snapshots),
    ("GET", "snapshots/{}", snapshots.show_snapshot),
    ("POST", "snapshots/{}", snapshots.take_snapshot),
    ("DELETE", "snapshots/{}", snapshots.delete_snapshot),
    ("POST", "snapshots/{}/restore", snapshots.restore_snapshot),
    ("GET", "snapshots/{}/parts/{}", snapshots.send_part),
    ("POST", "restores", snapshots.begin_restore),
    ("PUT", "restores/{}/parts/{}", snapshots.receive_part),
    ("POST", "restores/{}/finish", snapshots.finish_restore),
    ("DELETE", "restores/{}", snapshots.cancel_restore),
    ("POST", "checkpoints", snapshots.make_checkpoint),
    ("DELETE", "checkpoints/{}", snapshots.delete_checkpoint),
    ("GET", "cluster", cluster.show_status),
    ("POST", "cluster/failover", cluster.fail_over),
    ("POST", "cluster/failover-region", cluster.fail_over_region),
    ("POST", "cluster/drain", cluster.drain),
    ("POST", "cluster/undrain", cluster.undrain),
    ("DELETE", "cluster/nodes/{}", cluster.remove_node),
    ("POST", "cluster/verify", cluster.begin_verification),
    ("GET", "cluster/verify/{}", cluster.show_verification),
    ("GET", "cluster/placement", cluster.show_placement),
    ("PUT", "cluster/placement", cluster.change_placement),
    ("POST", "cluster/move", cluster.move_log),
    ("GET", "runtime", server.show_runtime),
    ("PUT", "runtime", server.change_runtime),
    ("GET", "clock", clock_control.show_clock),
    ("POST", "clock", clock_control.move_clock),
)
# Actions other than GET that read-only credentials may use: what they change is their own log-in. Computations that
# look ahead read containers at most, and are bounded in number, time and memory.
CHANGES_NOTHING: Final = frozenset(
    (
        *(session.log_in, session.log_out, session.make_ticket, samples.parse),
        *(foresight.make_estimate, foresight.begin_simulation, foresight.cancel_job),
        *(advice.begin_advice, advice.begin_upload, advice.receive_part, advice.cancel_upload),
    )
)
# Actions other than GET that a server in read-only mode answers too: they change no data and no definitions.
CHANGES_NO_DATA: Final = CHANGES_NOTHING | frozenset(
    (
        *(server.change_runtime, clock_control.move_clock),
        *(faults.create_rule, faults.delete_rule, faults.delete_rules),
        *(captures.start_capture, captures.stop_capture, captures.delete_capture, captures.tell_secret),
        *(snapshots.take_snapshot, snapshots.delete_snapshot, snapshots.make_checkpoint, snapshots.delete_checkpoint),
        *(snapshots.cancel_restore, reshapes.pause, migrations.stop),
        *(cluster.fail_over, cluster.fail_over_region, cluster.drain, cluster.undrain, cluster.remove_node),
        *(cluster.begin_verification, cluster.show_verification),
        *(cluster.change_placement, cluster.move_log),
    )
)
REQUESTS = tuple((method, path) for method, path, _ in _ACTIONS)
# Those that read-only credentials are refused.
CHANGING = tuple(
    (method, path) for method, path, action in _ACTIONS if method != "GET" and action not in CHANGES_NOTHING
)
ROUTES = Routes(_ACTIONS)
