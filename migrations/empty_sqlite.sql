CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
--
CREATE TABLE exchanges (
	id TEXT NOT NULL, 
	opened_at TEXT NOT NULL, 
	state TEXT NOT NULL, 
	outcome TEXT, 
	source TEXT NOT NULL, 
	origin TEXT NOT NULL, 
	provider TEXT NOT NULL, 
	dialect TEXT NOT NULL, 
	operation TEXT NOT NULL, 
	path TEXT NOT NULL, 
	request_model TEXT, 
	response_model TEXT, 
	response_id TEXT, 
	id_unstable BOOLEAN DEFAULT 0 NOT NULL, 
	content_digest TEXT, 
	duplicate_of TEXT, 
	id_collision BOOLEAN DEFAULT 0 NOT NULL, 
	streamed BOOLEAN DEFAULT 0 NOT NULL, 
	http_status INTEGER, 
	finish_reason TEXT, 
	error_type TEXT, 
	error_code TEXT, 
	error_message TEXT, 
	service_tier TEXT, 
	first_byte_at TEXT, 
	first_token_at TEXT, 
	settled_at TEXT, 
	request_bytes BIGINT, 
	response_bytes BIGINT, 
	client_bytes BIGINT, 
	removed_bytes BIGINT, 
	upstream_digest TEXT, 
	client_digest TEXT, 
	removed_digest TEXT, 
	events BIGINT, 
	usage_asked BOOLEAN, 
	usage_injected BOOLEAN DEFAULT 0 NOT NULL, 
	usage_stripped BOOLEAN DEFAULT 0 NOT NULL, 
	resent BOOLEAN DEFAULT 0 NOT NULL, 
	degraded TEXT, 
	key_fingerprint TEXT, 
	key_hint TEXT, 
	user_agent TEXT, 
	end_user TEXT, 
	session_id TEXT, 
	tags TEXT NOT NULL, 
	node TEXT, 
	capture TEXT, request_digest TEXT, project TEXT, git_branch TEXT, agent TEXT, parent_session_id TEXT, tool_calls BIGINT CONSTRAINT ck_exchanges_tool_calls_not_negative CHECK (tool_calls >= 0), purpose TEXT, cache_diagnosis TEXT, account TEXT, retry_after_ms BIGINT CONSTRAINT ck_exchanges_retry_after_ms_not_negative CHECK (retry_after_ms >= 0), hold_picousd BIGINT CONSTRAINT ck_exchanges_hold_picousd_not_negative CHECK (hold_picousd >= 0), hold_list_value_picousd BIGINT CONSTRAINT ck_exchanges_hold_list_value_picousd_not_negative CHECK (hold_list_value_picousd >= 0), hold_tokens BIGINT CONSTRAINT ck_exchanges_hold_tokens_not_negative CHECK (hold_tokens >= 0), meant_model TEXT, api_version TEXT, 
	CONSTRAINT pk_exchanges PRIMARY KEY (opened_at, id), 
	CONSTRAINT ck_exchanges_state CHECK (state IN ('open', 'settled', 'lost')), 
	CONSTRAINT ck_exchanges_source CHECK (source IN ('live', 'replay', 'import')), 
	CONSTRAINT ck_exchanges_outcome CHECK (outcome IN ('complete', 'client_left', 'upstream_cut', 'error_frame', 'http_error', 'lost', 'refused')), 
	CONSTRAINT ck_exchanges_outcome_when_ended CHECK ((state = 'open') = (outcome IS NULL)), 
	CONSTRAINT ck_exchanges_settled_at_when_ended CHECK ((state = 'open') = (settled_at IS NULL)), 
	CONSTRAINT ck_exchanges_lost_is_lost CHECK (state = 'open' OR (state = 'lost') = (outcome = 'lost')), 
	CONSTRAINT ck_exchanges_not_its_own_duplicate CHECK (duplicate_of <> id), 
	CONSTRAINT ck_exchanges_request_bytes_not_negative CHECK (request_bytes >= 0), 
	CONSTRAINT ck_exchanges_response_bytes_not_negative CHECK (response_bytes >= 0), 
	CONSTRAINT ck_exchanges_client_bytes_not_negative CHECK (client_bytes >= 0), 
	CONSTRAINT ck_exchanges_removed_bytes_not_negative CHECK (removed_bytes >= 0), 
	CONSTRAINT ck_exchanges_events_not_negative CHECK (events >= 0), 
	CONSTRAINT ck_exchanges_tags_is_json CHECK (tags IS NULL OR json_valid(tags)), 
	CONSTRAINT ck_exchanges_opened_at_is_instant CHECK (opened_at GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9] [0-9][0-9]:[0-9][0-9]:[0-9][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]Z')
);
--
CREATE INDEX ix_exchanges_id ON exchanges (id);
--
CREATE INDEX ix_exchanges_open ON exchanges (node) WHERE state = 'open';
--
CREATE INDEX ix_exchanges_session_id ON exchanges (session_id, opened_at) WHERE session_id IS NOT NULL;
--
CREATE INDEX ix_exchanges_key_fingerprint ON exchanges (key_fingerprint, opened_at);
--
CREATE TABLE readings (
	id TEXT NOT NULL, 
	exchange_id TEXT NOT NULL, 
	opened_at TEXT NOT NULL, 
	revision INTEGER NOT NULL, 
	meter_version TEXT NOT NULL, 
	usage_source TEXT NOT NULL, 
	input_tokens BIGINT, 
	cache_read_tokens BIGINT, 
	cache_write_tokens BIGINT, 
	cache_write_5m_tokens BIGINT, 
	cache_write_1h_tokens BIGINT, 
	output_tokens BIGINT, 
	reasoning_tokens BIGINT, 
	input_audio_tokens BIGINT, 
	output_audio_tokens BIGINT, 
	tool_units TEXT NOT NULL, 
	further TEXT NOT NULL, 
	remarks TEXT NOT NULL, 
	usage_json TEXT, 
	estimated_output_tokens BIGINT, 
	reported_cost_picousd BIGINT, 
	reported_upstream_cost_picousd BIGINT, 
	is_byok BOOLEAN, 
	read_at TEXT NOT NULL, 
	reason TEXT, billing TEXT CONSTRAINT ck_readings_billing CHECK (billing IN ('metered', 'plan', 'free')), cost_state TEXT CONSTRAINT ck_readings_cost_state CHECK (cost_state IN ('priced', 'partial', 'unpriced', 'reported')), amount_picousd BIGINT CONSTRAINT ck_readings_amount_picousd_not_negative CHECK (amount_picousd >= 0) CONSTRAINT ck_readings_amount_where_priced CHECK (amount_picousd IS NULL OR COALESCE(cost_state, 'unpriced') <> 'unpriced'), list_value_picousd BIGINT CONSTRAINT ck_readings_list_value_picousd_not_negative CHECK (list_value_picousd >= 0), saved_picousd BIGINT, extra_input_tokens BIGINT CONSTRAINT ck_readings_extra_input_tokens_not_negative CHECK (extra_input_tokens >= 0), extra_output_tokens BIGINT CONSTRAINT ck_readings_extra_output_tokens_not_negative CHECK (extra_output_tokens >= 0), charges TEXT DEFAULT '[]' NOT NULL CONSTRAINT ck_readings_charges_is_json CHECK (charges IS NULL OR json_valid(charges)), 
	CONSTRAINT pk_readings PRIMARY KEY (opened_at, exchange_id, id), 
	CONSTRAINT fk_readings_exchanges FOREIGN KEY(opened_at, exchange_id) REFERENCES exchanges (opened_at, id), 
	CONSTRAINT ck_readings_usage_source CHECK (usage_source IN ('reported', 'partial', 'estimated', 'none')), 
	CONSTRAINT ck_readings_revision_not_negative CHECK (revision >= 0), 
	CONSTRAINT ck_readings_input_tokens_not_negative CHECK (input_tokens >= 0), 
	CONSTRAINT ck_readings_cache_read_tokens_not_negative CHECK (cache_read_tokens >= 0), 
	CONSTRAINT ck_readings_cache_write_tokens_not_negative CHECK (cache_write_tokens >= 0), 
	CONSTRAINT ck_readings_cache_write_5m_tokens_not_negative CHECK (cache_write_5m_tokens >= 0), 
	CONSTRAINT ck_readings_cache_write_1h_tokens_not_negative CHECK (cache_write_1h_tokens >= 0), 
	CONSTRAINT ck_readings_output_tokens_not_negative CHECK (output_tokens >= 0), 
	CONSTRAINT ck_readings_reasoning_tokens_not_negative CHECK (reasoning_tokens >= 0), 
	CONSTRAINT ck_readings_input_audio_tokens_not_negative CHECK (input_audio_tokens >= 0), 
	CONSTRAINT ck_readings_output_audio_tokens_not_negative CHECK (output_audio_tokens >= 0), 
	CONSTRAINT ck_readings_estimated_output_tokens_not_negative CHECK (estimated_output_tokens >= 0), 
	CONSTRAINT ck_readings_reported_cost_picousd_not_negative CHECK (reported_cost_picousd >= 0), 
	CONSTRAINT ck_readings_reported_upstream_cost_picousd_not_negative CHECK (reported_upstream_cost_picousd >= 0), 
	CONSTRAINT ck_readings_tool_units_is_json CHECK (tool_units IS NULL OR json_valid(tool_units)), 
	CONSTRAINT ck_readings_further_is_json CHECK (further IS NULL OR json_valid(further)), 
	CONSTRAINT ck_readings_remarks_is_json CHECK (remarks IS NULL OR json_valid(remarks)), 
	CONSTRAINT ck_readings_usage_json_is_json CHECK (usage_json IS NULL OR json_valid(usage_json))
);
--
CREATE TABLE meta (
	"key" TEXT NOT NULL, 
	value TEXT NOT NULL, 
	CONSTRAINT pk_meta PRIMARY KEY ("key")
);
--
CREATE TABLE learned (
	origin TEXT NOT NULL, 
	path TEXT NOT NULL, 
	verdict TEXT NOT NULL, 
	learned_at TEXT NOT NULL, 
	expires_at TEXT NOT NULL, 
	CONSTRAINT pk_learned PRIMARY KEY (origin, path)
);
--
CREATE TABLE nodes (
	node TEXT NOT NULL, 
	seen_at TEXT NOT NULL, 
	CONSTRAINT pk_nodes PRIMARY KEY (node)
);
--
CREATE TABLE outbox (
	seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	exchange_id TEXT NOT NULL, 
	opened_at TEXT NOT NULL
);
--
CREATE TABLE set_aside (
	exchange_id TEXT NOT NULL, 
	opened_at TEXT NOT NULL, 
	error TEXT NOT NULL, 
	refused_at TEXT NOT NULL, 
	CONSTRAINT pk_set_aside PRIMARY KEY (opened_at, exchange_id)
);
--
CREATE TRIGGER exchanges_settled BEFORE UPDATE OF 
    state, outcome, source, origin, provider, dialect, operation, path, request_model,
    response_model, response_id, id_unstable, content_digest, streamed, http_status,
    finish_reason, error_type, error_code, error_message, service_tier, first_byte_at,
    first_token_at, settled_at, request_bytes, response_bytes, client_bytes, removed_bytes,
    upstream_digest, client_digest, removed_digest, events, usage_asked, usage_injected,
    usage_stripped, resent, degraded, key_fingerprint, key_hint, user_agent, end_user,
    session_id, tags, node, capture
 ON exchanges WHEN OLD.state = 'settled' OR (OLD.state = 'lost' AND NEW.state <> 'settled') BEGIN SELECT RAISE(ABORT, 'a settled exchange does not change'); END;
--
CREATE TRIGGER exchanges_identity BEFORE UPDATE OF id, opened_at ON exchanges BEGIN SELECT RAISE(ABORT, 'id and opened_at of an exchange do not change'); END;
--
CREATE TRIGGER exchanges_kept BEFORE DELETE ON exchanges WHEN NOT EXISTS (SELECT 1 FROM meta WHERE key = 'retention') BEGIN SELECT RAISE(ABORT, 'exchanges are only dropped by retention'); END;
--
CREATE TRIGGER exchanges_not_replaced BEFORE INSERT ON exchanges WHEN EXISTS (SELECT 1 FROM exchanges WHERE opened_at = NEW.opened_at AND id = NEW.id AND state = 'settled') BEGIN SELECT RAISE(IGNORE); END;
--
CREATE TRIGGER readings_kept BEFORE DELETE ON readings WHEN NOT EXISTS (SELECT 1 FROM meta WHERE key = 'retention') BEGIN SELECT RAISE(ABORT, 'readings are only dropped by retention'); END;
--
CREATE TRIGGER readings_not_replaced BEFORE INSERT ON readings WHEN EXISTS (SELECT 1 FROM readings WHERE opened_at = NEW.opened_at AND exchange_id = NEW.exchange_id AND id = NEW.id) BEGIN SELECT RAISE(IGNORE); END;
--
CREATE TABLE stale_days (
	day DATE NOT NULL, 
	starts_at TEXT NOT NULL, 
	ends_at TEXT NOT NULL, 
	writes BIGINT NOT NULL, 
	CONSTRAINT pk_stale_days PRIMARY KEY (day)
);
--
CREATE INDEX ix_exchanges_response ON exchanges (response_id, origin, duplicate_of, id_collision, upstream_digest, request_digest, key_fingerprint, content_digest) WHERE response_id IS NOT NULL;
--
CREATE INDEX ix_exchanges_recorded ON exchanges (response_id, origin, upstream_digest, content_digest) WHERE response_id IS NOT NULL AND source <> 'live';
--
CREATE TABLE alerts (
	budget TEXT NOT NULL, 
	period_start TEXT NOT NULL, 
	threshold INTEGER NOT NULL, 
	claimed_at TEXT NOT NULL, 
	attempts INTEGER NOT NULL, 
	sent_at TEXT, 
	CONSTRAINT pk_alerts PRIMARY KEY (budget, period_start, threshold)
);
--
CREATE TABLE unpriced_lines (
	opened_at TEXT NOT NULL, 
	exchange_id TEXT NOT NULL, 
	ordinal INTEGER NOT NULL, 
	response_id TEXT, 
	provider TEXT NOT NULL, 
	model TEXT, 
	service_tier TEXT, 
	line TEXT, 
	quantity BIGINT, 
	reason TEXT, 
	CONSTRAINT pk_unpriced_lines PRIMARY KEY (opened_at, exchange_id, ordinal)
)
 WITHOUT ROWID

;
--
CREATE TABLE segments (
	opened_at TEXT NOT NULL, 
	exchange_id TEXT NOT NULL, 
	packed TEXT NOT NULL, 
	CONSTRAINT pk_segments PRIMARY KEY (opened_at, exchange_id)
)
 WITHOUT ROWID

;
--
CREATE TABLE quotas (
	opened_at TEXT NOT NULL, 
	exchange_id TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	window TEXT NOT NULL, 
	window_name TEXT NOT NULL, 
	window_minutes BIGINT, 
	provider TEXT NOT NULL, 
	key_fingerprint TEXT, 
	account TEXT, 
	holder TEXT NOT NULL, 
	limit_value BIGINT, 
	remaining BIGINT, 
	used_ppm BIGINT, 
	status TEXT, 
	resets_at TEXT, 
	observed_at TEXT NOT NULL, 
	CONSTRAINT pk_quotas PRIMARY KEY (opened_at, exchange_id, kind, window), 
	CONSTRAINT ck_quotas_kind CHECK (kind IN ('plan', 'rate'))
)
 WITHOUT ROWID

;
--
CREATE INDEX ix_quotas_holder ON quotas (kind, provider, holder, window, observed_at);
--
CREATE TRIGGER exchanges_added_late AFTER INSERT ON exchanges WHEN  NEW.opened_at < (SELECT value FROM meta WHERE key = 'rolled_until') BEGIN INSERT INTO stale_days (day, starts_at, ends_at, writes) VALUES (substr(NEW.opened_at, 1, 10), substr(NEW.opened_at, 1, 10) || ' 00:00:00.000000Z', date(substr(NEW.opened_at, 1, 10), '+1 day') || ' 00:00:00.000000Z', 1) ON CONFLICT (day) DO UPDATE SET writes = writes + 1; END;
--
CREATE TRIGGER exchanges_changed_late AFTER UPDATE OF state, duplicate_of ON exchanges WHEN  NEW.opened_at < (SELECT value FROM meta WHERE key = 'rolled_until') BEGIN INSERT INTO stale_days (day, starts_at, ends_at, writes) VALUES (substr(NEW.opened_at, 1, 10), substr(NEW.opened_at, 1, 10) || ' 00:00:00.000000Z', date(substr(NEW.opened_at, 1, 10), '+1 day') || ' 00:00:00.000000Z', 1) ON CONFLICT (day) DO UPDATE SET writes = writes + 1; END;
--
CREATE TRIGGER exchanges_dropped AFTER DELETE ON exchanges WHEN  OLD.opened_at < (SELECT value FROM meta WHERE key = 'rolled_until') BEGIN INSERT INTO stale_days (day, starts_at, ends_at, writes) VALUES (substr(OLD.opened_at, 1, 10), substr(OLD.opened_at, 1, 10) || ' 00:00:00.000000Z', date(substr(OLD.opened_at, 1, 10), '+1 day') || ' 00:00:00.000000Z', 1) ON CONFLICT (day) DO UPDATE SET writes = writes + 1; END;
--
CREATE TRIGGER readings_added_late AFTER INSERT ON readings WHEN  NEW.opened_at < (SELECT value FROM meta WHERE key = 'rolled_until') BEGIN INSERT INTO stale_days (day, starts_at, ends_at, writes) VALUES (substr(NEW.opened_at, 1, 10), substr(NEW.opened_at, 1, 10) || ' 00:00:00.000000Z', date(substr(NEW.opened_at, 1, 10), '+1 day') || ' 00:00:00.000000Z', 1) ON CONFLICT (day) DO UPDATE SET writes = writes + 1; END;
--
CREATE TABLE pricings (
  id TEXT NOT NULL,
  exchange_id TEXT NOT NULL,
  opened_at TEXT NOT NULL,
  reading_id TEXT NOT NULL,
  revision INTEGER NOT NULL,
  cost_state TEXT CONSTRAINT ck_pricings_cost_state CHECK (cost_state IN ('priced', 'partial', 'unpriced', 'reported')), amount_picousd BIGINT CONSTRAINT ck_pricings_amount_picousd_not_negative CHECK (amount_picousd >= 0) CONSTRAINT ck_pricings_amount_where_priced CHECK (amount_picousd IS NULL OR COALESCE(cost_state, 'unpriced') <> 'unpriced'), list_value_picousd BIGINT CONSTRAINT ck_pricings_list_value_picousd_not_negative CHECK (list_value_picousd >= 0), saved_picousd BIGINT, extra_input_tokens BIGINT CONSTRAINT ck_pricings_extra_input_tokens_not_negative CHECK (extra_input_tokens >= 0), extra_output_tokens BIGINT CONSTRAINT ck_pricings_extra_output_tokens_not_negative CHECK (extra_output_tokens >= 0),
  charges TEXT DEFAULT '[]' NOT NULL CONSTRAINT ck_pricings_charges_is_json CHECK (charges IS NULL OR json_valid(charges)),
  CONSTRAINT pk_pricings PRIMARY KEY (opened_at, exchange_id, reading_id, revision, id),
  CONSTRAINT ck_pricings_revision_from_2 CHECK (revision >= 2), FOREIGN KEY (opened_at, exchange_id, reading_id) REFERENCES readings (opened_at, exchange_id, id)
) WITHOUT ROWID;
--
CREATE TRIGGER readings_append_only BEFORE UPDATE ON readings BEGIN SELECT RAISE(ABORT, 'readings are append-only'); END;
--
CREATE TRIGGER pricings_added_late AFTER INSERT ON pricings WHEN NEW.opened_at < (SELECT value FROM meta WHERE key = 'rolled_until') BEGIN INSERT INTO stale_days (day, starts_at, ends_at, writes) VALUES (substr(NEW.opened_at, 1, 10), substr(NEW.opened_at, 1, 10) || ' 00:00:00.000000Z', date(substr(NEW.opened_at, 1, 10), '+1 day') || ' 00:00:00.000000Z', 1) ON CONFLICT (day) DO UPDATE SET writes = writes + 1; END;
--
CREATE TABLE sums (
	summed_by TEXT NOT NULL, 
	opened_at TEXT NOT NULL, 
	model TEXT, 
	provider TEXT, 
	key_fingerprint TEXT, 
	session_id TEXT, 
	project TEXT, 
	git_branch TEXT, 
	agent TEXT, 
	purpose TEXT, 
	billing TEXT, 
	tags TEXT, 
	request_model TEXT, 
	origin TEXT, 
	dialect TEXT, 
	operation TEXT, 
	service_tier TEXT, 
	outcome TEXT, 
	end_user TEXT, 
	user_agent TEXT, 
	source TEXT, 
	key_hint TEXT, 
	requests BIGINT, 
	errors BIGINT, 
	without_usage BIGINT, 
	complete_without_usage BIGINT, 
	estimated BIGINT, 
	priced BIGINT, 
	partial BIGINT, 
	reported BIGINT, 
	unpriced BIGINT, 
	covered BIGINT, 
	unlisted BIGINT, 
	input_tokens BIGINT, 
	uncached_input_tokens BIGINT, 
	cache_read_tokens BIGINT, 
	cache_write_tokens BIGINT, 
	cache_write_5m_tokens BIGINT, 
	cache_write_1h_tokens BIGINT, 
	output_tokens BIGINT, 
	reasoning_tokens BIGINT, 
	extra_input_tokens BIGINT, 
	extra_output_tokens BIGINT, 
	estimated_input_tokens BIGINT, 
	estimated_output_tokens BIGINT, 
	cacheable_input_tokens BIGINT, 
	cost_picousd BIGINT, 
	estimated_cost_picousd BIGINT, 
	list_value_picousd BIGINT, 
	covered_value_picousd BIGINT, 
	reported_cost_picousd BIGINT, 
	saved_picousd BIGINT, 
	difference_picousd BIGINT, 
	generation_ms BIGINT, 
	generated_tokens BIGINT, 
	first_token_times TEXT, 
	duration_times TEXT, 
	opened BIGINT, 
	still_open BIGINT, 
	settled BIGINT, 
	lost BIGINT, 
	degraded BIGINT, 
	duplicates BIGINT
, refused BIGINT);
--
CREATE INDEX ix_sums_summed_by_opened_at ON sums (summed_by, opened_at);
--
CREATE TABLE cap_shares (
	cap TEXT NOT NULL, 
	account TEXT NOT NULL, 
	node TEXT NOT NULL, 
	spent_usd BIGINT DEFAULT '0' NOT NULL, 
	spent_list_value_usd BIGINT DEFAULT '0' NOT NULL, 
	spent_tokens BIGINT DEFAULT '0' NOT NULL, 
	spent_requests BIGINT DEFAULT '0' NOT NULL, 
	held_usd BIGINT DEFAULT '0' NOT NULL, 
	held_list_value_usd BIGINT DEFAULT '0' NOT NULL, 
	held_tokens BIGINT DEFAULT '0' NOT NULL, 
	held_requests BIGINT DEFAULT '0' NOT NULL, 
	at DOUBLE NOT NULL, 
	CONSTRAINT pk_cap_shares PRIMARY KEY (cap, account, node)
);
--
INSERT INTO alembic_version (version_num) VALUES ('0025');
--
