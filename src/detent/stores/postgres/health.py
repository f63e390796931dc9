"""Checks the settings of a PostgreSQL server, as `stores.sql.health` says.

Without `pg_monitor`, a user sees only the number of standbys.
"""

from contextlib import closing

from detent.stores.base import Diagnosis
from detent.stores.postgres.link import SCHEMA, Links
from detent.stores.sql.health import Health, connections, durability, failover
from detent.text import plural

_LOOK = """
SELECT json_build_object(
    'fsync', current_setting('fsync'), 'full_page_writes', current_setting('full_page_writes'),
    'standby_names', current_setting('synchronous_standby_names'),
    'standbys', (SELECT count(*) FROM pg_stat_replication),
    'version', current_setting('server_version'), 'encoding', current_setting('server_encoding'),
    'free', current_setting('max_connections')::integer
        - (SELECT count(*) FROM pg_stat_activity WHERE datname IS NOT NULL))
"""


def look(url: str) -> Health:
    """Creates nothing; raises for a standby."""
    links = Links(url, SCHEMA, lambda link: None)
    with closing(links):
        settings = links.look(_LOOK)
    unsafe = {
        name: (settings[name], "on") for name in ("fsync", "full_page_writes") if settings[name] != "on"
    }
    standbys, names = settings["standbys"], settings["standby_names"].strip()
    count = plural(standbys, "standby") if standbys else "no standby"
    copies = failover(count, "set synchronous_standby_names", are_there=standbys > 0, is_awaited=bool(names))
    rows = connections(settings["free"], "raise max_connections, or use a pooler")
    if settings["encoding"] != "UTF8":
        found = f"the database is in {settings['encoding']}"
        consequence = "it refuses text that this cannot express"
        advice = "use a database that was created with UTF8"
        rows = (Diagnosis("encoding", "weak", found, consequence, advice), *rows)
    return Health((durability(f"PostgreSQL {settings['version']}", unsafe), copies), rows)
