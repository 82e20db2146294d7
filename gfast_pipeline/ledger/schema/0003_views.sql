-- What people ask for, over the tables of 0001 and 0002. Each statement replaces a view, so this file may change.

CREATE OR REPLACE VIEW withdrawn AS -- decisions whose plan was taken out of every ranking
SELECT DISTINCT d.entry AS decision
FROM decision d
JOIN withdrawal w
    ON w.candidate_hash = d.candidate_hash
    AND (w.contract_hash IS NULL OR w.contract_hash = d.contract_hash)
    AND (w.plan_hash IS NULL OR w.plan_hash = d.plan_hash);

CREATE OR REPLACE VIEW incumbent AS -- the end of the chain of promotions of a contract and scope; no row: v000
-- selection/incumbent.py in SQL: a promotion counts over the holder at that point, or over a withdrawn plan right above
WITH RECURSIVE promotion AS (
    SELECT d.*, e.utc, row_number() OVER (PARTITION BY d.contract_hash, d.scope ORDER BY e.name) AS n,
        d.entry IN (SELECT decision FROM withdrawn) AS gone
    FROM decision d
    JOIN entry e ON e.id = d.entry
    WHERE d.outcome = 'promote' AND d.confirmed AND d.for_title AND d.scope IS NOT NULL
), replay AS (
    SELECT contract_hash, scope, 0::BIGINT AS n, NULL::VARCHAR AS holder, NULL::VARCHAR AS decision,
        []::VARCHAR[] AS above
    FROM promotion
    WHERE n = 1
    UNION ALL
    SELECT contract_hash, scope, n, if(takes AND NOT gone, challenger, holder), if(takes AND NOT gone, entry, decision),
        CASE WHEN NOT takes THEN above WHEN gone THEN list_append(above, challenger) ELSE [] END
    FROM (
        SELECT p.contract_hash, p.scope, p.n, p.challenger, p.entry, p.gone, r.holder, r.decision, r.above, coalesce(
            list_contains(r.above, p.incumbent)
            OR if(r.holder IS NULL, starts_with(p.incumbent, 'v000_'), p.incumbent = r.holder), false
        ) AS takes
        FROM replay r
        JOIN promotion p ON p.contract_hash = r.contract_hash AND p.scope = r.scope AND p.n = r.n + 1
    )
), ended AS (
    FROM replay
    QUALIFY row_number() OVER (PARTITION BY contract_hash, scope ORDER BY n DESC) = 1
)
SELECT p.workload, p.contract, p.contract_hash, p.scope, p.accelerator, p.challenger AS plan, p.candidate_hash,
    p.plan_hash, p.entry AS decision, p.utc
FROM ended
JOIN promotion p ON p.entry = ended.decision;

CREATE OR REPLACE VIEW samples AS -- one row a timed call
SELECT s.entry AS "session", s.kind, s.workload, s.contract, s.accelerator, v.participant AS plan, p.role, p.plan_hash,
    v."case", v.mode, v.generation, v.block, v.turn, v."position", v.status,
    unnest(range(1, len(v.event_us) + 1)) AS call, unnest(v.event_us) AS us
FROM visit v
JOIN session s ON s.entry = v.entry
JOIN participant p ON p.entry = v.entry AND p.name = v.participant;

CREATE OR REPLACE VIEW timing AS -- median µs of a participant on a case in a mode of one session, over its visits
SELECT v.entry AS "session", v.participant, v."case", v.mode, median(list_median(v.event_us)) AS us, count(*) AS visits
FROM visit v
WHERE v.status = 'ok' AND len(v.event_us) > 0
GROUP BY ALL;

CREATE OR REPLACE VIEW refused AS -- what a plan failed, on one case or (NULL) altogether
SELECT DISTINCT s.contract_hash, s.scope, p.plan_hash, v."case"
FROM verdict v
JOIN session s ON s.entry = v.entry
JOIN participant p ON p.entry = v.entry AND p.name = v.participant
WHERE v.status = 'failed';

CREATE OR REPLACE VIEW proved AS -- which plan was found right on which case (14 is compared serially), in any session
SELECT DISTINCT s.contract_hash, s.scope, p.plan_hash, v."case"
FROM verdict v
JOIN session s ON s.entry = v.entry
JOIN participant p ON p.entry = v.entry AND p.name = v.participant
WHERE v.gate IN ('official', 'serial') AND v.status = 'passed' AND s.status NOT IN ('void', 'failed');

CREATE OR REPLACE VIEW standing_timing AS -- `timing` of what may be ranked: measured soundly, proved wrong nowhere, not withdrawn
SELECT e.name AS log, s.workload, s.contract, s.contract_hash, s.scope, s.accelerator, s.kind, p.role, p.candidate_hash,
    p.plan_hash, t.*
FROM timing t
JOIN session s ON s.entry = t."session"
JOIN entry e ON e.id = s.entry
JOIN participant p ON p.entry = t."session" AND p.name = t.participant
WHERE s.status NOT IN ('void', 'failed') AND s.scope IS NOT NULL
    AND NOT EXISTS (
        FROM refused r
        WHERE r.contract_hash = s.contract_hash AND r.scope IS NOT DISTINCT FROM s.scope AND r.plan_hash = p.plan_hash
            AND (r."case" IS NULL OR r."case" = t."case")
    )
    AND NOT EXISTS (
        FROM withdrawal w
        WHERE w.candidate_hash = p.candidate_hash
            AND (w.contract_hash IS NULL OR w.contract_hash = s.contract_hash)
            AND (w.plan_hash IS NULL OR w.plan_hash = p.plan_hash)
    );

CREATE OR REPLACE VIEW best_peer AS -- the fastest right peer of a case, from sessions of peers
SELECT contract_hash, scope, "case", arg_min(participant, us) AS peer, min(us) AS us
FROM standing_timing
WHERE kind = 'peers' AND role = 'peer' AND mode = 'official'
GROUP BY ALL;

CREATE OR REPLACE VIEW held AS -- the last archive of each contract and scope
SELECT h.*
FROM holders h
JOIN entry e ON e.id = h.entry
WHERE h.scope IS NOT NULL
QUALIFY row_number() OVER (PARTITION BY h.contract_hash, h.scope ORDER BY e.name DESC) = 1;

CREATE OR REPLACE VIEW archived AS -- cells of the last archives; `gone` where the holder was withdrawn
SELECT h.workload, h.contract, h.contract_hash, h.scope, h.accelerator, c.*, EXISTS (
    FROM withdrawal w
    WHERE w.candidate_hash = c.candidate_hash
        AND (w.contract_hash IS NULL OR w.contract_hash = h.contract_hash)
        AND (w.plan_hash IS NULL OR w.plan_hash = c.plan_hash)
) AS gone
FROM held h
JOIN holders_case c ON c.entry = h.entry;

CREATE OR REPLACE VIEW measured_best AS -- per case the fastest proved plan by its last session: where no archive names one
WITH latest AS (
    FROM standing_timing t
    WHERE mode = 'official' AND role IN ('control', 'incumbent', 'challenger')
        AND (
            starts_with(participant, 'v000_') -- the reference's own code: nothing to prove
            OR EXISTS (
                FROM proved p
                WHERE p.contract_hash = t.contract_hash AND p.scope = t.scope AND p.plan_hash = t.plan_hash
                    AND p."case" = t."case"
            )
        )
        AND (
            (contract_hash, scope) NOT IN (SELECT (contract_hash, scope) FROM held)
            OR (contract_hash, scope, "case") IN (SELECT (contract_hash, scope, "case") FROM archived WHERE gone)
        )
    QUALIFY row_number() OVER (PARTITION BY contract_hash, scope, "case", plan_hash ORDER BY log DESC) = 1
), fastest AS (
    FROM latest
    QUALIFY row_number() OVER (PARTITION BY contract_hash, scope, "case" ORDER BY us, log) = 1
)
SELECT f.workload, f.contract, f.contract_hash, f.scope, f.accelerator, f."case", f.participant AS plan, f.plan_hash,
    f.us AS official_us, q.us AS queued_us, r.us / f.us AS ratio_to_reference, b.us / f.us AS ratio_to_best_peer,
    [f."session"] AS sessions
FROM fastest f
LEFT JOIN timing q
    ON q."session" = f."session" AND q.participant = f.participant AND q."case" = f."case" AND q.mode = 'queued'
LEFT JOIN (FROM timing t JOIN participant p ON p.entry = t."session" AND p.name = t.participant AND p.role = 'reference') r
    ON r."session" = f."session" AND r."case" = f."case" AND r.mode = 'official'
LEFT JOIN best_peer b ON b.contract_hash = f.contract_hash AND b.scope = f.scope AND b."case" = f."case";

CREATE OR REPLACE VIEW champions AS
WITH gaps AS (
    SELECT g.contract_hash, g.scope, c."case", c.plan_hash, c.gap, c.binding_term
    FROM gap_case c
    JOIN gap g ON g.entry = c.entry
    JOIN entry e ON e.id = g.entry
    QUALIFY row_number() OVER (
        PARTITION BY g.contract_hash, g.scope, c."case", c.plan_hash
        ORDER BY coalesce(g."of" = 'holders', false) DESC, e.name DESC
    ) = 1
), best AS (
    SELECT workload, contract, contract_hash, scope, accelerator, "case", plan, plan_hash, official_us, queued_us,
        ratio_to_reference, ratio_low, ratio_high, ratio_to_best_peer, sessions, 'held' AS standing
    FROM archived
    WHERE NOT gone
    UNION ALL BY NAME
    SELECT *, if(
        (contract_hash, scope) IN (SELECT (contract_hash, scope) FROM held),
        'measured, its holder was withdrawn', 'measured, no archive yet'
    ) AS standing
    FROM measured_best
)
SELECT b.workload, b.contract, b.accelerator, b."case", b.plan, b.official_us, b.queued_us, b.ratio_to_reference,
    b.ratio_low, b.ratio_high, b.ratio_to_best_peer, g.gap, g.binding_term, b.sessions, b.standing, b.contract_hash,
    b.scope
FROM best b
LEFT JOIN gaps g
    ON g.contract_hash = b.contract_hash AND g.scope = b.scope AND g."case" = b."case" AND g.plan_hash = b.plan_hash
ORDER BY b.workload, b.contract, b.accelerator, b.contract_hash, b.scope, b."case";

CREATE OR REPLACE VIEW leaderboard AS -- one row a plan and scope: the decision that gave it the title, else its last
SELECT d.workload, d.contract, d.accelerator, d.challenger AS plan, d.incumbent, d.challenger_us, d.incumbent_us, d.ratio,
    d.low, d.high, d.mode, d.outcome, d.confirmed, d.entry IN (SELECT decision FROM withdrawn) AS withdrawn,
    i.decision IS NOT NULL AS holds_title, e.utc AS decided, d.entry AS decision, d.reason, d.contract_hash, d.scope
FROM decision d
JOIN entry e ON e.id = d.entry
LEFT JOIN incumbent i ON i.contract_hash = d.contract_hash AND i.scope = d.scope AND i.plan_hash = d.plan_hash
WHERE NOT starts_with(d.outcome, 'screen_') -- a screen decides nothing
QUALIFY row_number() OVER (
    PARTITION BY d.contract_hash, d.scope, d.challenger, d.plan_hash
    ORDER BY coalesce(i.decision = d.entry, false) DESC, e.name DESC
) = 1
ORDER BY d.workload, d.contract, d.accelerator, d.contract_hash, d.scope, withdrawn, d.challenger_us;

CREATE OR REPLACE VIEW history AS -- every entry in order, in words
SELECT e.utc, e.kind, e.id, coalesce(
    CASE e.kind
        WHEN 'session' THEN format(
            '{} of {} under {} on {}: {}', s.kind,
            coalesce((
                SELECT string_agg(p.name, ', ' ORDER BY p.n) FROM participant p
                WHERE p.entry = e.id AND p.role NOT IN ('reference', 'control', 'twin')
            ), 'the device'),
            s.contract, coalesce(s.accelerator, 'no device'),
            CASE WHEN s.reason <> '' THEN s.status || ', ' || s.reason ELSE s.status END
        )
        WHEN 'decision' THEN d.reason
        WHEN 'candidate' THEN format('{} was registered: {}', c.name, coalesce(c.hypothesis, 'no hypothesis'))
        WHEN 'approval' THEN format('{} approved {} ({})', a."by", a.contract, a.contract_hash[:12])
        WHEN 'withdrawal' THEN format('{} withdrew {}: {}', w."by", w.name, w.reason)
        WHEN 'gap' THEN format('gap to the floor under {}, from ceilings {}', g.contract, g.ceilings)
        WHEN 'holders' THEN format('archive of {} on {}: {}', h.contract, coalesce(h.accelerator, 'no device'), (
            SELECT string_agg(DISTINCT x.plan, ', ' ORDER BY x.plan) FROM holders_case x WHERE x.entry = e.id
        ))
        WHEN 'route' THEN r.overall || ': ' || r.argument
        WHEN 'submission' THEN format('compiled {} ({})', b.path, b.sha256[:12])
    END,
    'a ' || e.kind || ', which this version does not unfold'
) AS what, e.run, e.asset
FROM entry e
LEFT JOIN session s ON s.entry = e.id
LEFT JOIN decision d ON d.entry = e.id
LEFT JOIN candidate c ON c.entry = e.id
LEFT JOIN approval a ON a.entry = e.id
LEFT JOIN withdrawal w ON w.entry = e.id
LEFT JOIN gap g ON g.entry = e.id
LEFT JOIN holders h ON h.entry = e.id
LEFT JOIN route r ON r.entry = e.id
LEFT JOIN submission b ON b.entry = e.id
ORDER BY e.name;

CREATE OR REPLACE VIEW budget_used AS -- minutes between start and end of sessions
SELECT workload, contract, accelerator, kind, count(*) AS sessions, sum(epoch(ended - started)) / 60 AS device_minutes,
    contract_hash, scope
FROM session
GROUP BY ALL
ORDER BY workload, contract, accelerator, contract_hash, scope, kind;

CREATE OR REPLACE VIEW refusals AS -- verdicts that failed
SELECT e.utc, s.workload, s.contract, s.accelerator, v.participant AS plan, p.role, v."case", v.gate, v.draw, v.variant,
    v.trial, v.share, v."limit", v.reason, s.entry AS "session"
FROM verdict v
JOIN session s ON s.entry = v.entry
JOIN entry e ON e.id = v.entry
LEFT JOIN participant p ON p.entry = v.entry AND p.name = v.participant
WHERE v.status = 'failed'
ORDER BY e.name, v.n;

CREATE OR REPLACE VIEW noise AS -- the same code twice: of decisions overall (with interval), of noise sessions case by case
WITH decided AS (
    SELECT *, us::MAP(VARCHAR, MAP(VARCHAR, DOUBLE)) AS by_role, unnest([
        {'mode': mode, 'ratio': noise_ratio, 'low': noise_low, 'high': noise_high},
        {'mode': 'queued', 'ratio': noise_queued_ratio, 'low': noise_queued_low, 'high': noise_queued_high}
    ]) AS control
    FROM decision
), measured_twice AS (
    SELECT 'noise session' AS source, s.entry AS id, s.contract, s.accelerator, a.participant AS plan, a.mode, a."case",
        a.us AS incumbent_us, b.us AS twin_us, a.us / b.us AS ratio
    FROM session s
    JOIN participant i ON i.entry = s.entry AND i.role = 'incumbent'
    JOIN participant t ON t.entry = s.entry AND t.role = 'twin'
    JOIN timing a ON a."session" = s.entry AND a.participant = i.name
    JOIN timing b ON b."session" = s.entry AND b.participant = t.name AND b."case" = a."case" AND b.mode = a.mode
    WHERE s.kind = 'noise'
), told AS (
    SELECT 'decision' AS source, d.entry AS id, d.contract, d.accelerator, d.incumbent AS plan, d.control.mode AS mode,
        NULL::INTEGER AS "case", d.by_role[d.control.mode]['incumbent'] AS incumbent_us,
        d.by_role[d.control.mode]['twin'] AS twin_us, d.control.ratio AS ratio, d.control.low AS low,
        d.control.high AS high
    FROM decided d
    WHERE d.control.ratio IS NOT NULL
    UNION ALL BY NAME
    FROM measured_twice
)
SELECT e.utc, t.*
FROM told t
JOIN entry e ON e.id = t.id
ORDER BY e.name, t.mode, t."case";
