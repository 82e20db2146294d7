-- What follows from measurements: who holds which case, how far from the floor, where to go next, what was compiled;
-- and what people say: approvals and withdrawals. Columns as in 0001.

CREATE TABLE candidate (
    entry VARCHAR PRIMARY KEY,
    workload VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    candidate_hash VARCHAR NOT NULL,
    source VARCHAR,
    hypothesis VARCHAR
);

CREATE TABLE approval (
    entry VARCHAR PRIMARY KEY,
    workload VARCHAR NOT NULL,
    contract VARCHAR NOT NULL,
    contract_hash VARCHAR NOT NULL,
    "by" VARCHAR,
    date VARCHAR
);

CREATE TABLE gap (
    entry VARCHAR PRIMARY KEY,
    workload VARCHAR NOT NULL,
    contract VARCHAR NOT NULL,
    contract_hash VARCHAR NOT NULL,
    scope VARCHAR,
    accelerator VARCHAR,
    "of" VARCHAR, -- name of a candidate, or holders
    ceilings VARCHAR -- session
);

CREATE TABLE gap_case (
    entry VARCHAR,
    n INTEGER,
    "case" INTEGER NOT NULL,
    plan VARCHAR,
    candidate_hash VARCHAR,
    plan_hash VARCHAR,
    official_us DOUBLE,
    queued_us DOUBLE,
    mode VARCHAR,
    "session" VARCHAR,
    floors JSON, -- term → µs
    floor_us DOUBLE,
    binding_term VARCHAR,
    hard_floor_us DOUBLE,
    gap DOUBLE,
    PRIMARY KEY (entry, n)
);

CREATE TABLE holders (
    entry VARCHAR PRIMARY KEY,
    workload VARCHAR NOT NULL,
    contract VARCHAR NOT NULL,
    contract_hash VARCHAR NOT NULL,
    scope VARCHAR,
    accelerator VARCHAR
);

CREATE TABLE holders_case (
    entry VARCHAR,
    n INTEGER,
    "case" INTEGER NOT NULL,
    status VARCHAR,
    plan VARCHAR,
    candidate_hash VARCHAR,
    plan_hash VARCHAR,
    since VARCHAR, -- decision or session; NULL: held by default
    official_us DOUBLE,
    queued_us DOUBLE,
    reference_us DOUBLE,
    ratio_to_reference DOUBLE,
    ratio_low DOUBLE,
    ratio_high DOUBLE,
    best_peer VARCHAR,
    best_peer_us DOUBLE,
    ratio_to_best_peer DOUBLE,
    sessions VARCHAR[],
    PRIMARY KEY (entry, n)
);

CREATE TABLE holders_contested (
    entry VARCHAR,
    n INTEGER,
    "case" INTEGER NOT NULL,
    challenger VARCHAR,
    ratio DOUBLE,
    low DOUBLE,
    high DOUBLE,
    p DOUBLE,
    p_holm DOUBLE,
    taken BOOLEAN,
    reason VARCHAR,
    PRIMARY KEY (entry, n)
);

CREATE TABLE route (
    entry VARCHAR PRIMARY KEY,
    workload VARCHAR NOT NULL,
    contract VARCHAR NOT NULL,
    contract_hash VARCHAR NOT NULL,
    scope VARCHAR,
    accelerator VARCHAR,
    overall VARCHAR,
    argument VARCHAR
);

CREATE TABLE route_case (
    entry VARCHAR,
    n INTEGER,
    "case" INTEGER NOT NULL,
    route VARCHAR,
    gap DOUBLE,
    binding_term VARCHAR,
    argument VARCHAR,
    PRIMARY KEY (entry, n)
);

CREATE TABLE withdrawal (
    entry VARCHAR PRIMARY KEY,
    workload VARCHAR NOT NULL,
    contract_hash VARCHAR, -- NULL: under every contract
    candidate_hash VARCHAR NOT NULL,
    name VARCHAR,
    plan_hash VARCHAR, -- NULL: every plan of the candidate
    reason VARCHAR,
    "by" VARCHAR
);

CREATE TABLE submission (
    entry VARCHAR PRIMARY KEY,
    workload VARCHAR NOT NULL,
    contract VARCHAR NOT NULL,
    contract_hash VARCHAR NOT NULL,
    scope VARCHAR,
    accelerator VARCHAR,
    path VARCHAR,
    sha256 VARCHAR,
    generalist VARCHAR,
    generalist_hash VARCHAR
);

CREATE TABLE submission_case (
    entry VARCHAR,
    n INTEGER,
    "case" INTEGER NOT NULL,
    plan VARCHAR,
    candidate_hash VARCHAR,
    plan_hash VARCHAR,
    sessions VARCHAR[],
    PRIMARY KEY (entry, n)
);
