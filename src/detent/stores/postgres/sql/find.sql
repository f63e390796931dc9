-- Searches.  Each examines a bounded number of fires (`most`), and returns where to continue.
--
-- Statements are built as texts that repeat the whole condition of the partial index that they should use.

CREATE FUNCTION is_one_of(name text, given jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN CASE coalesce(jsonb_array_length(given), 0)
        WHEN 0 THEN ''
        WHEN 1 THEN format(' AND %I = %L', name, given->>0)
        ELSE format(' AND %I = ANY (%L)', name, ARRAY(SELECT jsonb_array_elements_text(given)))
    END;
END $$;

-- What a fire must be like, besides being in the part of history that is searched.
CREATE FUNCTION find_filters(given jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    filters text := 'true';
    name    text;
BEGIN
    FOREACH name IN ARRAY ARRAY['app', 'job', 'key', 'state'] LOOP
        IF given->>name <> '' THEN
            filters := filters || format(' AND %I = %L', name, given->>name);
        END IF;
    END LOOP;
    filters := filters || is_one_of('key', given->'keys') || is_one_of('job', given->'jobs')
        || is_one_of('origin', given->'origins') || is_one_of('queue', given->'queues');
    IF given->'kinds' <> '[]' THEN
        filters := filters || format(' AND split_part(outcome, '' '', 1) IN (SELECT jsonb_array_elements_text(%L))',
                                     given->'kinds');
    END IF;
    RETURN filters;
END $$;

-- The part of history that is searched.
CREATE FUNCTION find_span(given jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    span text := 'true';
BEGIN
    IF given->>'job' <> '' THEN
        span := span || format(' AND job = %L', given->>'job');
    END IF;
    IF given->>'since' IS NOT NULL THEN
        span := span || format(' AND due >= %L', given->>'since');
    END IF;
    IF given->>'until' IS NOT NULL THEN
        span := span || format(' AND due <= %L', given->>'until');
    END IF;
    IF given->'before'->>1 IS NOT NULL THEN
        span := span || format(' AND (due, key) < (%L::float8, %L)', given->'before'->>0, given->'before'->>1);
    END IF;
    RETURN span;
END $$;

-- What selects few fires however long history is; none: nothing does.
CREATE FUNCTION find_few(given jsonb) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
    owner text := coalesce(nullif(given->>'app', ''), split_part(given->>'job', '.', 1));
    few   text;
    seen  bigint;
BEGIN
    IF given->>'key' <> '' THEN
        RETURN format('key = %L', given->>'key');
    ELSIF jsonb_array_length(given->'keys') > 0 THEN
        RETURN 'true' || is_one_of('key', given->'keys');
    ELSIF given->>'state' IN ('claimed', 'pending') THEN
        few := CASE given->>'state' WHEN 'claimed' THEN 'state = ''claimed'' AND expires > 0'
                                    ELSE 'state = ''pending'' AND run_at > 0' END;
        IF owner <> '' THEN
            few := few || format(' AND app = %L', owner);
        END IF;
    ELSIF given->'kinds' <> '[]' AND NOT given->'kinds' ? 'succeeded' THEN
        few := 'outcome NOT LIKE ''succeeded %''' || is_one_of('queue', given->'queues');
    ELSE
        RETURN NULL;
    END IF;
    EXECUTE 'SELECT pg_catalog.count(*) FROM (SELECT FROM fires WHERE ' || few || ' LIMIT $1 + 1) AS counted'
        INTO seen USING (given->>'most')::bigint;
    RETURN CASE WHEN seen <= (given->>'most')::bigint THEN few END;
END $$;

-- What is next; what was parked is read beside the rest, each in its order.
CREATE FUNCTION find_upcoming(given jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    query  text := 'SELECT id, run_at, key FROM fires WHERE state = ''pending'' AND run_at > 0 AND '
                   || find_filters(given) || ' AND ' || find_span(given);
    ending text := format(' ORDER BY run_at, key LIMIT %L', given->>'limit');
BEGIN
    RETURN 'SELECT id FROM ((' || query || ' AND NOT aside' || ending || ') UNION ALL ('
        || query || ' AND aside' || ending || ')) AS either' || ending;
END $$;

-- It reads indexes in their order, whatever the server has learned of the table.
CREATE FUNCTION find(given jsonb) RETURNS jsonb LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
SET enable_seqscan TO off SET enable_bitmapscan TO off SET jit TO off AS $$
DECLARE
    few     text;
    history text;
    query   text;
    sort_key    text := 'fires.due DESC, fires.key DESC';
    said    jsonb;
    place   jsonb;
BEGIN
    given := jsonb_build_object('most', 20000) || given;
    IF given->>'upcoming' = 'true' THEN
        query := find_upcoming(given);
        sort_key := 'fires.run_at, fires.key';
    ELSE
        few := find_few(given);
        history := 'FROM fires WHERE ' || find_span(given) || CASE
            WHEN few IS NOT NULL THEN ' AND ' || few || ' OFFSET 0'  -- all of these are examined, and sorted
            ELSE ' ORDER BY due DESC, key DESC LIMIT ' || (given->>'most')::bigint END;
        query := 'SELECT id FROM (SELECT * ' || history || ') AS fires WHERE ' || find_filters(given)
            || ' ORDER BY ' || sort_key || format(' LIMIT %L', given->>'limit');
    END IF;
    EXECUTE 'SELECT jsonb_agg(row_json(fires, $1) ORDER BY ' || sort_key || ') FROM fires WHERE id = ANY (ARRAY(' || query
        || '))' INTO said USING given->>'key' <> '';
    IF few IS NULL AND history IS NOT NULL AND coalesce(jsonb_array_length(said), 0) < (given->>'limit')::bigint THEN
        EXECUTE 'SELECT jsonb_build_array(due, key) FROM (SELECT due, key ' || history || ') AS last OFFSET $1 - 1'
            INTO place USING (given->>'most')::bigint;
    END IF;
    RETURN jsonb_build_object('rows', coalesce(said, '[]'), 'stopped_at', place);
END $$;

CREATE FUNCTION row_json(me fires, whole boolean) RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    SELECT fire_json(me) || jsonb_build_object(
        'state', me.state, 'attempt', me.attempt, 'node', me.node, 'fence', me.fence, 'run_at', me.run_at,
        'ran_at', me.ran_at, 'over_at', me.over_at, 'outcome', me.outcome, 'stop', me.stop,
        'attempts', coalesce((
            SELECT jsonb_agg(jsonb_build_array(
                number, node, fence, started, ended, outcome, status, took,
                CASE WHEN whole THEN encode(tail, 'base64') ELSE '' END, result) ORDER BY number)
            FROM attempts WHERE fire = me.id), '[]'))
$$;

-- From one app to the next in each index: how many fires wait makes no difference.
CREATE FUNCTION apps(given jsonb) RETURNS jsonb LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
SET enable_seqscan TO off SET jit TO off AS $$
BEGIN
    RETURN (
        WITH RECURSIVE waiting(name) AS (
            SELECT min(app) FROM fires WHERE state = 'pending' AND run_at > 0
            UNION ALL
            SELECT (SELECT min(app) FROM fires WHERE state = 'pending' AND run_at > 0 AND app > name)
            FROM waiting WHERE name IS NOT NULL
        ), noted(name) AS (
            SELECT min(app) FROM notes
            UNION ALL
            SELECT (SELECT min(app) FROM notes WHERE app > name) FROM noted WHERE name IS NOT NULL
        )
        SELECT jsonb_build_object('apps', coalesce(jsonb_agg(name), '[]')) FROM (
            SELECT name FROM waiting WHERE name IS NOT NULL
            UNION SELECT name FROM noted WHERE name IS NOT NULL
            UNION SELECT app FROM apps
        ) AS either);
END $$;
