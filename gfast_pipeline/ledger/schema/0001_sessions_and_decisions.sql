-- The index of the evidence: what was measured and what was decided. `entry` is the log, one row a file; every other
-- table says by `entry` (its id) which file a row comes from, and by `n` where in that file's list. Times are µs unless
-- a name says otherwise; timestamps are UTC; `scope` is canonical JSON, so that equal scopes are equal texts.

CREATE TABLE entry (
    name VARCHAR PRIMARY KEY, -- of the file; the order of the log
    utc TIMESTAMP NOT NULL,
    kind VARCHAR NOT NULL,
    id VARCHAR NOT NULL,
    sha256 VARCHAR NOT NULL, -- of the content
    bytes BIGINT NOT NULL, -- of the content
    run VARCHAR NOT NULL, -- of Dagster, or cli; ingest where nobody said
    asset VARCHAR NOT NULL
);

CREATE TABLE session (
    entry VARCHAR PRIMARY KEY,
    kind VARCHAR NOT NULL,
    workload VARCHAR NOT NULL,
    contract VARCHAR NOT NULL,
    contract_hash VARCHAR NOT NULL,
    scope VARCHAR, -- NULL where nothing was measured; equals none
    accelerator VARCHAR,
    sms INTEGER,
    memory_mb BIGINT,
    power_limit_w DOUBLE,
    mig VARCHAR,
    driver VARCHAR,
    cuda VARCHAR,
    torch VARCHAR,
    triton VARCHAR,
    protocol INTEGER,
    job_hash VARCHAR,
    seed HUGEINT,
    started TIMESTAMP,
    ended TIMESTAMP,
    status VARCHAR NOT NULL,
    reason VARCHAR,
    rest_of VARCHAR,
    isolation VARCHAR,
    generations INTEGER,
    blocks INTEGER,
    cases INTEGER[],
    modes VARCHAR[],
    cells_done INTEGER[][],
    cells_missing INTEGER[][],
    not_run VARCHAR[],
    environment JSON
);

CREATE TABLE participant (
    entry VARCHAR,
    n INTEGER,
    name VARCHAR NOT NULL,
    role VARCHAR NOT NULL,
    candidate_hash VARCHAR,
    plan_hash VARCHAR,
    schedules JSON,
    PRIMARY KEY (entry, n)
);

CREATE TABLE verdict (
    entry VARCHAR,
    n INTEGER,
    gate VARCHAR NOT NULL,
    status VARCHAR NOT NULL,
    participant VARCHAR NOT NULL,
    "case" INTEGER,
    draw VARCHAR,
    variant VARCHAR,
    trial INTEGER,
    generation INTEGER,
    share DOUBLE,
    reference_share DOUBLE,
    "limit" DOUBLE,
    reason VARCHAR,
    PRIMARY KEY (entry, n)
);

CREATE TABLE visit (
    entry VARCHAR,
    n INTEGER,
    participant VARCHAR NOT NULL,
    "case" INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    block INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    "position" INTEGER,
    mode VARCHAR NOT NULL,
    calls INTEGER,
    event_us DOUBLE[],
    judge_wall_us DOUBLE,
    runner_wall_us DOUBLE,
    handshake_us DOUBLE,
    spin_us DOUBLE,
    status VARCHAR,
    untimed INTEGER,
    host_us DOUBLE,
    PRIMARY KEY (entry, n)
);

CREATE TABLE phase (
    entry VARCHAR,
    n INTEGER,
    phase VARCHAR NOT NULL,
    seconds DOUBLE,
    participant VARCHAR,
    "case" INTEGER,
    generation INTEGER,
    PRIMARY KEY (entry, n)
);

CREATE TABLE clock (
    entry VARCHAR,
    n INTEGER,
    "case" INTEGER,
    generation INTEGER,
    block INTEGER,
    sm_mhz INTEGER,
    memory_mhz INTEGER,
    temperature_c INTEGER,
    power_w DOUBLE,
    throttle_reasons BIGINT,
    PRIMARY KEY (entry, n)
);

CREATE TABLE usage (
    entry VARCHAR,
    n INTEGER,
    participant VARCHAR NOT NULL,
    "case" INTEGER,
    generation INTEGER,
    peak_bytes BIGINT,
    energy_j DOUBLE,
    PRIMARY KEY (entry, n)
);

CREATE TABLE measured (
    entry VARCHAR,
    name VARCHAR,
    figure DOUBLE, -- where it is one number
    figures JSON, -- where it is more
    PRIMARY KEY (entry, name)
);

CREATE TABLE decision (
    entry VARCHAR PRIMARY KEY,
    outcome VARCHAR NOT NULL,
    reason VARCHAR,
    workload VARCHAR,
    contract VARCHAR,
    contract_hash VARCHAR NOT NULL,
    scope VARCHAR,
    accelerator VARCHAR,
    driver VARCHAR,
    torch VARCHAR,
    protocol INTEGER,
    challenger VARCHAR NOT NULL,
    incumbent VARCHAR,
    candidate_hash VARCHAR,
    plan_hash VARCHAR,
    mode VARCHAR,
    challenger_us DOUBLE,
    incumbent_us DOUBLE,
    ratio DOUBLE,
    low DOUBLE,
    high DOUBLE,
    shown_low DOUBLE, -- the wider of the pooled interval and the sessions' range
    shown_high DOUBLE,
    queued_ratio DOUBLE,
    queued_low DOUBLE,
    queued_high DOUBLE,
    margin DOUBLE,
    margin_queued DOUBLE,
    noise_ratio DOUBLE, -- incumbent ÷ twin
    noise_low DOUBLE,
    noise_high DOUBLE,
    noise_queued_ratio DOUBLE,
    noise_queued_low DOUBLE,
    noise_queued_high DOUBLE,
    health_ratio DOUBLE, -- reference ÷ v000
    health_low DOUBLE,
    health_high DOUBLE,
    ratio_to_reference DOUBLE,
    reference_low DOUBLE,
    reference_high DOUBLE,
    us JSON, -- mode → role → weighted geometric mean
    not_run VARCHAR[],
    notes VARCHAR[],
    resamples INTEGER,
    advances BOOLEAN,
    confirmed BOOLEAN NOT NULL,
    for_title BOOLEAN NOT NULL,
    publishable BOOLEAN
);

CREATE TABLE decision_session (
    entry VARCHAR,
    n INTEGER,
    "session" VARCHAR NOT NULL,
    PRIMARY KEY (entry, n)
);

CREATE TABLE decision_case (
    entry VARCHAR,
    n INTEGER,
    "case" INTEGER NOT NULL,
    mode VARCHAR,
    weight DOUBLE,
    challenger_us DOUBLE,
    incumbent_us DOUBLE,
    reference_us DOUBLE,
    ratio DOUBLE,
    low DOUBLE,
    high DOUBLE,
    best VARCHAR,
    best_us DOUBLE,
    best_peer VARCHAR,
    best_peer_us DOUBLE,
    PRIMARY KEY (entry, n)
);
