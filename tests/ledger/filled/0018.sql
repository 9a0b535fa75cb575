-- A ledger of schema 0018: the lines of a pricing are one value; one reading was priced again.


INSERT INTO exchanges (opened_at, id, state, outcome, settled_at, source, origin, provider, dialect, operation, path, response_model, response_id, content_digest, tags, node) VALUES ('2026-01-31 23:59:59.999999Z', 'a', 'settled', 'complete', '2026-02-01 00:00:01.000000Z', 'live', 'https://api.example.com:443', 'example', 'openai.chat', 'chat', '/v1/chat/completions', 'model-1', 'r-1', 'd-1', '{"team":"search"}', 'host/1/1')
INSERT INTO exchanges (opened_at, id, state, outcome, settled_at, source, origin, provider, dialect, operation, path, response_model, response_id, content_digest, duplicate_of, tags, node) VALUES ('2026-02-01 00:00:02.000000Z', 'b', 'settled', 'complete', '2026-02-01 00:00:03.000000Z', 'live', 'https://api.example.com:443', 'example', 'openai.chat', 'chat', '/v1/chat/completions', 'model-1', 'r-1', 'd-1', 'a', '{}', 'host/1/1')
INSERT INTO exchanges (opened_at, id, state, source, origin, provider, dialect, operation, path, tags, node) VALUES ('2026-02-01 01:00:00.000000Z', 'c', 'open', 'live', 'https://api.example.com:443', 'example', 'openai.chat', 'chat', '/v1/chat/completions', '{}', 'host/1/1')
INSERT INTO exchanges (opened_at, id, state, outcome, settled_at, source, origin, provider, dialect, operation, path, tags, node) VALUES ('2026-02-01 02:00:00.000000Z', 'd', 'lost', 'lost', '2026-02-01 02:00:05.000000Z', 'live', 'https://api.example.com:443', 'example', 'openai.chat', 'chat', '/v1/chat/completions', '{}', 'host/1/1')
INSERT INTO readings (opened_at, exchange_id, id, revision, meter_version, usage_source, input_tokens, cache_read_tokens, output_tokens, tool_units, further, remarks, usage_json, read_at, cost_state, amount_picousd, list_value_picousd, charges) VALUES ('2026-01-31 23:59:59.999999Z', 'a', 'ra', 1, '1', 'reported', 100, 40, 20, '{}', '[]', '[]', '{"in": 100,  "out": 20}', '2026-02-01 00:00:01.000000Z', 'partial', 600, 600, '[["uncached_input", null, 60, 10, 600, "list 1", "2026-02-01 00:00:01.000000Z", null], ["output", null, 20, null, null, "list 1", "2026-02-01 00:00:01.000000Z", "no price"]]')
INSERT INTO readings (opened_at, exchange_id, id, revision, meter_version, usage_source, input_tokens, cache_read_tokens, output_tokens, tool_units, further, remarks, usage_json, read_at) VALUES ('2026-02-01 00:00:02.000000Z', 'b', 'rb', 1, '1', 'reported', 100, 40, 20, '{}', '[]', '[]', '{"in": 100,  "out": 20}', '2026-02-01 00:00:03.000000Z')
INSERT INTO readings (opened_at, exchange_id, id, revision, meter_version, usage_source, tool_units, further, remarks, read_at) VALUES ('2026-02-01 02:00:00.000000Z', 'd', 'lost.d', 0, 'none', 'none', '{}', '[]', '[]', '2026-02-01 02:00:05.000000Z')
INSERT INTO pricings (opened_at, exchange_id, reading_id, revision, id, cost_state, amount_picousd, list_value_picousd, charges) VALUES ('2026-01-31 23:59:59.999999Z', 'a', 'ra', 2, '2:aa', 'partial', 720, 720, '[["uncached_input", null, 60, 12, 720, "list 2", "2026-03-01 00:00:01.000000Z", "again", "ra.0.2.aa", 0, 2, "ra.0", null], ["output", null, 20, null, null, "list 1", "2026-02-01 00:00:01.000000Z", "no price", "ra.1", 1, 1, null, "kept"]]')
INSERT INTO meta (key, value) VALUES ('secret', '00ff')
INSERT INTO learned (origin, path, verdict, learned_at, expires_at) VALUES ('https://api.example.com:443', '/v1/chat/completions', 'opt_in', '2026-01-01 00:00:00.000000Z', '2026-02-01 00:00:00.000000Z')

-- after: SELECT COUNT(*), SUM(input_tokens), SUM(cost_picousd) FROM requests -> 2, 100, 720
-- after: SELECT cost_state, CAST(usage_json AS text) FROM requests WHERE id = 'a' -> partial, {"in": 100,  "out": 20}
-- after: SELECT SUM(amount_picousd), COUNT(*), MAX(id) FROM current_charges -> 720, 2, ra.1
-- after: SELECT line, quantity FROM unpriced -> output, 20
-- after: SELECT SUM(requests), SUM(input_tokens), SUM(unpriced) FROM usage_daily -> 2, 100, 1
-- after: SELECT SUM(opened), SUM(still_open), SUM(settled), SUM(lost), SUM(duplicates) FROM completeness -> 4, 1, 2, 1, 1
-- after: SELECT verdict FROM learned -> opt_in
