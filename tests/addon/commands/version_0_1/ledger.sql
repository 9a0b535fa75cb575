BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0004');
CREATE TABLE charges (
	id TEXT NOT NULL, 
	exchange_id TEXT NOT NULL, 
	opened_at TEXT NOT NULL, 
	reading_id TEXT NOT NULL, 
	ordinal INTEGER NOT NULL, 
	revision INTEGER NOT NULL, 
	line TEXT NOT NULL, 
	model TEXT, 
	quantity BIGINT NOT NULL, 
	unit_picousd BIGINT, 
	amount_picousd BIGINT, 
	price_source TEXT NOT NULL, 
	priced_at TEXT NOT NULL, 
	supersedes TEXT, 
	reason TEXT, 
	CONSTRAINT pk_charges PRIMARY KEY (opened_at, exchange_id, reading_id, ordinal, revision, id), 
	CONSTRAINT fk_charges_readings FOREIGN KEY(opened_at, exchange_id, reading_id) REFERENCES readings (opened_at, exchange_id, id), 
	CONSTRAINT ck_charges_ordinal_not_negative CHECK (ordinal >= 0), 
	CONSTRAINT ck_charges_quantity_not_negative CHECK (quantity >= 0), 
	CONSTRAINT ck_charges_unit_picousd_not_negative CHECK (unit_picousd >= 0), 
	CONSTRAINT ck_charges_amount_picousd_not_negative CHECK (amount_picousd >= 0), 
	CONSTRAINT ck_charges_revision_from_1 CHECK (revision >= 1), 
	CONSTRAINT ck_charges_revisions_supersede CHECK ((revision = 1) = (supersedes IS NULL)), 
	CONSTRAINT ck_charges_priced_or_not CHECK ((unit_picousd IS NULL) = (amount_picousd IS NULL)), 
	CONSTRAINT ck_charges_amount_is_exact CHECK (amount_picousd = quantity * unit_picousd)
)
 WITHOUT ROWID

;
INSERT INTO "charges" VALUES('49c841704d5820003d321f9b0a0ff932.0','dashscope-chat','2026-11-22 07:54:54.403546Z','49c841704d5820003d321f9b0a0ff932',0,1,'uncached_input',NULL,2071,1000000,2071000000,'override sha256:2fdc167d83fe','2026-11-22 07:54:54.417919Z',NULL,NULL);
INSERT INTO "charges" VALUES('49c841704d5820003d321f9b0a0ff932.1','dashscope-chat','2026-11-22 07:54:54.403546Z','49c841704d5820003d321f9b0a0ff932',1,1,'output',NULL,5,10000000,50000000,'override sha256:2fdc167d83fe','2026-11-22 07:54:54.417919Z',NULL,NULL);
INSERT INTO "charges" VALUES('f13ec7eb3b389828680d91c229e00c25.0','dashscope-responses','2026-11-22 07:54:54.445859Z','f13ec7eb3b389828680d91c229e00c25',0,1,'uncached_input',NULL,2071,1000000,2071000000,'override sha256:2fdc167d83fe','2026-11-22 07:54:54.456490Z',NULL,NULL);
INSERT INTO "charges" VALUES('f13ec7eb3b389828680d91c229e00c25.1','dashscope-responses','2026-11-22 07:54:54.445859Z','f13ec7eb3b389828680d91c229e00c25',1,1,'output',NULL,5,10000000,50000000,'override sha256:2fdc167d83fe','2026-11-22 07:54:54.456490Z',NULL,NULL);
INSERT INTO "charges" VALUES('baa03237bc2597e276e05772198ffc6f.0','charm-hyper','2026-11-22 07:54:54.474532Z','baa03237bc2597e276e05772198ffc6f',0,1,'uncached_input',NULL,10,1000000,10000000,'override sha256:2fdc167d83fe','2026-11-22 07:54:54.486134Z',NULL,NULL);
INSERT INTO "charges" VALUES('baa03237bc2597e276e05772198ffc6f.1','charm-hyper','2026-11-22 07:54:54.474532Z','baa03237bc2597e276e05772198ffc6f',1,1,'output',NULL,2,10000000,20000000,'override sha256:2fdc167d83fe','2026-11-22 07:54:54.486134Z',NULL,NULL);
INSERT INTO "charges" VALUES('9133fe707496d42f3e03bd6228f02f8a.0','gemini-thoughts','2026-11-22 07:54:54.512331Z','9133fe707496d42f3e03bd6228f02f8a',0,1,'uncached_input',NULL,7,1000000,7000000,'override sha256:2fdc167d83fe','2026-11-22 07:54:54.522533Z',NULL,NULL);
INSERT INTO "charges" VALUES('9133fe707496d42f3e03bd6228f02f8a.1','gemini-thoughts','2026-11-22 07:54:54.512331Z','9133fe707496d42f3e03bd6228f02f8a',1,1,'output',NULL,12,10000000,120000000,'override sha256:2fdc167d83fe','2026-11-22 07:54:54.522533Z',NULL,NULL);
INSERT INTO "charges" VALUES('587562b20d013091ad4326e40ad4cc71.0','mistral-audio','2026-11-22 07:54:54.539628Z','587562b20d013091ad4326e40ad4cc71',0,1,'uncached_input',NULL,4,1000000,4000000,'override sha256:2fdc167d83fe','2026-11-22 07:54:54.552948Z',NULL,NULL);
INSERT INTO "charges" VALUES('587562b20d013091ad4326e40ad4cc71.1','mistral-audio','2026-11-22 07:54:54.539628Z','587562b20d013091ad4326e40ad4cc71',1,1,'output',NULL,1073,10000000,10730000000,'override sha256:2fdc167d83fe','2026-11-22 07:54:54.552948Z',NULL,NULL);
INSERT INTO "charges" VALUES('587562b20d013091ad4326e40ad4cc71.2','mistral-audio','2026-11-22 07:54:54.539628Z','587562b20d013091ad4326e40ad4cc71',2,1,'audio_milliseconds',NULL,330000,NULL,NULL,'none','2026-11-22 07:54:54.552948Z',NULL,'no price for ''voxtral-small'' in the list of mistral');
INSERT INTO "charges" VALUES('333cfbcd5c78984c281a45cf154aff27.0','gigachat','2026-11-22 07:54:54.607459Z','333cfbcd5c78984c281a45cf154aff27',0,1,'uncached_input',NULL,1,1000000,1000000,'override sha256:2fdc167d83fe','2026-11-22 07:54:54.620627Z',NULL,NULL);
INSERT INTO "charges" VALUES('333cfbcd5c78984c281a45cf154aff27.1','gigachat','2026-11-22 07:54:54.607459Z','333cfbcd5c78984c281a45cf154aff27',1,1,'output',NULL,4,10000000,40000000,'override sha256:2fdc167d83fe','2026-11-22 07:54:54.620627Z',NULL,NULL);
INSERT INTO "charges" VALUES('ee408a166f5455b5eb56dbf1f60ada9f.0','no-count','2026-11-22 07:54:56.942009Z','ee408a166f5455b5eb56dbf1f60ada9f',0,1,'uncached_input',NULL,1,1000000,1000000,'override sha256:2fdc167d83fe','2026-11-22 07:54:56.946397Z',NULL,NULL);
INSERT INTO "charges" VALUES('0d7af42135dc74f341cf84ea68fba9c7.0','incomplete','2026-11-22 07:54:56.959885Z','0d7af42135dc74f341cf84ea68fba9c7',0,1,'uncached_input',NULL,21,1000000,21000000,'override sha256:2fdc167d83fe','2026-11-22 07:54:56.975985Z',NULL,NULL);
INSERT INTO "charges" VALUES('0d7af42135dc74f341cf84ea68fba9c7.1','incomplete','2026-11-22 07:54:56.959885Z','0d7af42135dc74f341cf84ea68fba9c7',1,1,'output',NULL,6,10000000,60000000,'override sha256:2fdc167d83fe','2026-11-22 07:54:56.975985Z',NULL,NULL);
INSERT INTO "charges" VALUES('60d66f554d644191fafe48f7990f9488.0','incomplete-none','2026-11-22 07:54:56.986664Z','60d66f554d644191fafe48f7990f9488',0,1,'uncached_input',NULL,3,1000000,3000000,'override sha256:2fdc167d83fe','2026-11-22 07:54:56.991817Z',NULL,NULL);
INSERT INTO "charges" VALUES('60d66f554d644191fafe48f7990f9488.1','incomplete-none','2026-11-22 07:54:56.986664Z','60d66f554d644191fafe48f7990f9488',1,1,'output',NULL,4,10000000,40000000,'override sha256:2fdc167d83fe','2026-11-22 07:54:56.991817Z',NULL,NULL);
INSERT INTO "charges" VALUES('300e7039879a7e5d4cfb27da155ef02b.0','bedrock-mistral','2026-11-22 07:54:57.001608Z','300e7039879a7e5d4cfb27da155ef02b',0,1,'uncached_input',NULL,5,1000000,5000000,'override sha256:2fdc167d83fe','2026-11-22 07:54:57.004161Z',NULL,NULL);
INSERT INTO "charges" VALUES('300e7039879a7e5d4cfb27da155ef02b.1','bedrock-mistral','2026-11-22 07:54:57.001608Z','300e7039879a7e5d4cfb27da155ef02b',1,1,'output',NULL,2,10000000,20000000,'override sha256:2fdc167d83fe','2026-11-22 07:54:57.004161Z',NULL,NULL);
INSERT INTO "charges" VALUES('d4b5b9e468bd27eb403017e6ba2461cc.0','venice','2026-11-22 07:54:57.069472Z','d4b5b9e468bd27eb403017e6ba2461cc',0,1,'uncached_input',NULL,20,1000000,20000000,'override sha256:2fdc167d83fe','2026-11-22 07:54:57.075700Z',NULL,NULL);
INSERT INTO "charges" VALUES('d4b5b9e468bd27eb403017e6ba2461cc.1','venice','2026-11-22 07:54:57.069472Z','d4b5b9e468bd27eb403017e6ba2461cc',1,1,'output',NULL,5,10000000,50000000,'override sha256:2fdc167d83fe','2026-11-22 07:54:57.075700Z',NULL,NULL);
INSERT INTO "charges" VALUES('f3e8b3c40fbefcad011fc766fcd16969.0','blank-before-colon','2026-11-22 07:54:57.104154Z','f3e8b3c40fbefcad011fc766fcd16969',0,1,'uncached_input',NULL,12,1000000,12000000,'override sha256:2fdc167d83fe','2026-11-22 07:54:57.115975Z',NULL,NULL);
INSERT INTO "charges" VALUES('f3e8b3c40fbefcad011fc766fcd16969.1','blank-before-colon','2026-11-22 07:54:57.104154Z','f3e8b3c40fbefcad011fc766fcd16969',1,1,'output',NULL,9,10000000,90000000,'override sha256:2fdc167d83fe','2026-11-22 07:54:57.115975Z',NULL,NULL);
INSERT INTO "charges" VALUES('f54e501ac1dea994d8d341d4dbc3591f.0','duplicate-keys','2026-11-22 07:54:57.255716Z','f54e501ac1dea994d8d341d4dbc3591f',0,1,'uncached_input',NULL,9,1000000,9000000,'override sha256:2fdc167d83fe','2026-11-22 07:54:57.275958Z',NULL,NULL);
INSERT INTO "charges" VALUES('f54e501ac1dea994d8d341d4dbc3591f.1','duplicate-keys','2026-11-22 07:54:57.255716Z','f54e501ac1dea994d8d341d4dbc3591f',1,1,'output',NULL,2,10000000,20000000,'override sha256:2fdc167d83fe','2026-11-22 07:54:57.275958Z',NULL,NULL);
INSERT INTO "charges" VALUES('76d521313bd43b7513da2a06df220a4e.0','injected','2026-11-22 07:54:57.367455Z','76d521313bd43b7513da2a06df220a4e',0,1,'cache_read',NULL,4,100000,400000,'override sha256:2fdc167d83fe','2026-11-22 07:54:57.380590Z',NULL,NULL);
INSERT INTO "charges" VALUES('76d521313bd43b7513da2a06df220a4e.1','injected','2026-11-22 07:54:57.367455Z','76d521313bd43b7513da2a06df220a4e',1,1,'uncached_input',NULL,8,1000000,8000000,'override sha256:2fdc167d83fe','2026-11-22 07:54:57.380590Z',NULL,NULL);
INSERT INTO "charges" VALUES('76d521313bd43b7513da2a06df220a4e.2','injected','2026-11-22 07:54:57.367455Z','76d521313bd43b7513da2a06df220a4e',2,1,'output',NULL,3,10000000,30000000,'override sha256:2fdc167d83fe','2026-11-22 07:54:57.380590Z',NULL,NULL);
INSERT INTO "charges" VALUES('74d57c9be17f86ca946f1715705ec22a.0','anthropic-cut','2026-11-22 07:54:57.401641Z','74d57c9be17f86ca946f1715705ec22a',0,1,'cache_read',NULL,7,100000,700000,'override sha256:2fdc167d83fe','2026-11-22 07:54:57.426167Z',NULL,NULL);
INSERT INTO "charges" VALUES('74d57c9be17f86ca946f1715705ec22a.1','anthropic-cut','2026-11-22 07:54:57.401641Z','74d57c9be17f86ca946f1715705ec22a',1,1,'uncached_input',NULL,21,1000000,21000000,'override sha256:2fdc167d83fe','2026-11-22 07:54:57.426167Z',NULL,NULL);
INSERT INTO "charges" VALUES('74d57c9be17f86ca946f1715705ec22a.2','anthropic-cut','2026-11-22 07:54:57.401641Z','74d57c9be17f86ca946f1715705ec22a',2,1,'output',NULL,1,10000000,10000000,'override sha256:2fdc167d83fe','2026-11-22 07:54:57.426167Z',NULL,NULL);
INSERT INTO "charges" VALUES('f17e8d8eecedf5b8bf901155f76e5062.0','2a449f4f0ef97a93e837d1932a1cc142','2026-11-22 07:54:58.412866Z','f17e8d8eecedf5b8bf901155f76e5062',0,1,'uncached_input',NULL,35,1000000,35000000,'override sha256:2fdc167d83fe','2026-11-22 07:55:03.823479Z',NULL,NULL);
INSERT INTO "charges" VALUES('f17e8d8eecedf5b8bf901155f76e5062.1','2a449f4f0ef97a93e837d1932a1cc142','2026-11-22 07:54:58.412866Z','f17e8d8eecedf5b8bf901155f76e5062',1,1,'output',NULL,12,10000000,120000000,'override sha256:2fdc167d83fe','2026-11-22 07:55:03.823479Z',NULL,NULL);
CREATE TABLE daily (
	day DATE NOT NULL, 
	provider TEXT NOT NULL, 
	model TEXT, 
	key_fingerprint TEXT, 
	key_hint TEXT, 
	requests BIGINT NOT NULL, 
	errors BIGINT NOT NULL, 
	without_usage BIGINT NOT NULL, 
	unpriced BIGINT NOT NULL, 
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
	cost_picousd BIGINT, 
	cacheable_input_tokens BIGINT
);
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
	capture TEXT, 
	CONSTRAINT pk_exchanges PRIMARY KEY (opened_at, id), 
	CONSTRAINT ck_exchanges_state CHECK (state IN ('open', 'settled', 'lost')), 
	CONSTRAINT ck_exchanges_source CHECK (source IN ('live', 'replay', 'import')), 
	CONSTRAINT ck_exchanges_outcome CHECK (outcome IN ('complete', 'client_left', 'upstream_cut', 'error_frame', 'http_error', 'lost')), 
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
INSERT INTO "exchanges" VALUES('dashscope-chat','2026-11-22 07:54:54.403546Z','settled','complete','live','http://dashscope-intl.aliyuncs.com:80','dashscope','openai.chat','chat','/compatible-mode/v1/chat/completions','qwen3-coder-plus','qwen3-coder-plus','chatcmpl-d',0,'db1146f3a77fa37ae926903bef9ec32a',NULL,0,0,200,'stop',NULL,NULL,NULL,NULL,'2026-11-22 07:54:54.417742Z',NULL,'2026-11-22 07:54:54.417919Z',78,516,516,0,'d3128981534efec38f47090cfad2afb11f6c9882aea33e5cf22216648ad719de','d3128981534efec38f47090cfad2afb11f6c9882aea33e5cf22216648ad719de',NULL,1,NULL,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}','host/28690/1795334089','captures/20261122T07-host-28690-1795334089.jsonl.gz#dashscope-chat');
INSERT INTO "exchanges" VALUES('dashscope-responses','2026-11-22 07:54:54.445859Z','settled','complete','live','http://dashscope-intl.aliyuncs.com:80','dashscope','openai.responses','chat','/api/v2/apps/protocols/compatible-mode/v1/responses','qwen3-max','qwen3-max','resp-1',0,'9892b5d9717f56b9d803a4a4a836e467',NULL,0,0,200,'completed',NULL,NULL,NULL,NULL,'2026-11-22 07:54:54.455953Z',NULL,'2026-11-22 07:54:54.456490Z',37,496,496,0,'4f6226440d9553396cb4bbf1804ad8e7f24311be548e4b4e7b45d8f85954b302','4f6226440d9553396cb4bbf1804ad8e7f24311be548e4b4e7b45d8f85954b302',NULL,1,NULL,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}','host/28690/1795334089','captures/20261122T07-host-28690-1795334089.jsonl.gz#dashscope-responses');
INSERT INTO "exchanges" VALUES('charm-hyper','2026-11-22 07:54:54.474532Z','settled','complete','live','http://hyper.charm.land:80','hyper.charm.land','openai.chat','chat','/api/v1/chat/completions','kimi-k2','kimi-k2','h1',0,'a243199fe8633329d848eda1312a2969',NULL,0,0,200,'stop',NULL,NULL,NULL,NULL,'2026-11-22 07:54:54.485986Z',NULL,'2026-11-22 07:54:54.486134Z',69,338,338,0,'9fa6e4eb079899bbaa56f88f952ed017fbd51be652b9bb0c6df02e24d2676c0c','9fa6e4eb079899bbaa56f88f952ed017fbd51be652b9bb0c6df02e24d2676c0c',NULL,1,NULL,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}','host/28690/1795334089','captures/20261122T07-host-28690-1795334089.jsonl.gz#charm-hyper');
INSERT INTO "exchanges" VALUES('gemini-thoughts','2026-11-22 07:54:54.512331Z','settled','complete','live','http://generativelanguage.googleapis.com:80','gcp.gemini','openai.chat','chat','/v1beta/openai/chat/completions','gemini-2.5-flash','gemini-2.5-flash','g1',0,'578beb9128c2f967eb8e03b488fbc2ee',NULL,0,0,200,'stop',NULL,NULL,NULL,NULL,'2026-11-22 07:54:54.522375Z',NULL,'2026-11-22 07:54:54.522533Z',78,316,316,0,'ea0f92627b07f533bff0e49e8b3301740898be9335f1616e8dae4a8272e60270','ea0f92627b07f533bff0e49e8b3301740898be9335f1616e8dae4a8272e60270',NULL,1,NULL,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}','host/28690/1795334089','captures/20261122T07-host-28690-1795334089.jsonl.gz#gemini-thoughts');
INSERT INTO "exchanges" VALUES('mistral-audio','2026-11-22 07:54:54.539628Z','settled','complete','live','http://api.mistral.ai:80','mistral_ai','openai.chat','chat','/v1/chat/completions','voxtral-small','voxtral-small','x2',0,'078255a56bf97c5ef32b91552e4a943d',NULL,0,0,200,'stop',NULL,NULL,NULL,NULL,'2026-11-22 07:54:54.552794Z',NULL,'2026-11-22 07:54:54.552948Z',75,348,348,0,'da2803a9530370883c9821ac33f31a8483ee9fa0ef7206ea11fee44f8fc38ce1','da2803a9530370883c9821ac33f31a8483ee9fa0ef7206ea11fee44f8fc38ce1',NULL,1,NULL,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}','host/28690/1795334089','captures/20261122T07-host-28690-1795334089.jsonl.gz#mistral-audio');
INSERT INTO "exchanges" VALUES('volcengine-bot','2026-11-22 07:54:54.569570Z','settled','complete','live','http://ark.cn-beijing.volces.com:80','ark.cn-beijing.volces.com','openai.chat','chat','/api/v3/bots/chat/completions','bot-1','doubao-pro','b2',0,'1fca8c3ac8c9994fbeb577ad4cb54b13',NULL,0,0,200,'stop',NULL,NULL,NULL,NULL,'2026-11-22 07:54:54.584428Z',NULL,'2026-11-22 07:54:54.584573Z',67,486,486,0,'5d40eace34e6f42124bd950004646f0df8122d042fe5503922a7e6214d743887','5d40eace34e6f42124bd950004646f0df8122d042fe5503922a7e6214d743887',NULL,1,NULL,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}','host/28690/1795334089','captures/20261122T07-host-28690-1795334089.jsonl.gz#volcengine-bot');
INSERT INTO "exchanges" VALUES('gigachat','2026-11-22 07:54:54.607459Z','settled','complete','live','http://gigachat.devices.sberbank.ru:80','gigachat.devices.sberbank.ru','openai.chat','chat','/api/v1/chat/completions','GigaChat','GigaChat:1.0.26.15',NULL,0,NULL,NULL,0,0,200,'stop',NULL,NULL,NULL,NULL,'2026-11-22 07:54:54.620483Z',NULL,'2026-11-22 07:54:54.620627Z',70,344,344,0,'104ac97c8138afb0891d0e3c4c0137d8b15e3a00165e8119e66b0efdc323a2d7','104ac97c8138afb0891d0e3c4c0137d8b15e3a00165e8119e66b0efdc323a2d7',NULL,1,NULL,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}','host/28690/1795334089','captures/20261122T07-host-28690-1795334089.jsonl.gz#gigachat');
INSERT INTO "exchanges" VALUES('watsonx','2026-11-22 07:54:54.642897Z','settled','complete','live','http://us-south.ml.cloud.ibm.com:80','ibm.watsonx.ai','unknown','unknown','/ml/v1/text/generation',NULL,NULL,NULL,0,NULL,NULL,0,0,200,NULL,NULL,NULL,NULL,NULL,'2026-11-22 07:54:54.652561Z',NULL,'2026-11-22 07:54:54.652676Z',65,226,226,0,'d2197d0ac4b58abcb0cc322eb0273ad7862e491a558c305472e8ea5b75603498','d2197d0ac4b58abcb0cc322eb0273ad7862e491a558c305472e8ea5b75603498',NULL,1,NULL,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}','host/28690/1795334089','captures/20261122T07-host-28690-1795334089.jsonl.gz#watsonx');
INSERT INTO "exchanges" VALUES('titan-cut','2026-11-22 07:54:56.918455Z','settled','upstream_cut','live','http://bedrock-runtime.us-east-1.amazonaws.com:80','aws.bedrock','bedrock.invoke','chat','/model/amazon.titan-text-express-v1/invoke-with-response-stream','amazon.titan-text-express-v1','amazon.titan-text-express-v1',NULL,0,NULL,NULL,0,1,200,NULL,NULL,NULL,NULL,NULL,'2026-11-22 07:54:56.936334Z','2026-11-22 07:54:56.936334Z','2026-11-22 07:54:56.936703Z',19,264,264,0,'308be8dcc1df42558a48132d1f9ba8e5f6b17f3d97884ca28c66d4f2f0b2ca86','308be8dcc1df42558a48132d1f9ba8e5f6b17f3d97884ca28c66d4f2f0b2ca86',NULL,1,NULL,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}','host/28690/1795334089','captures/20261122T07-host-28690-1795334089.jsonl.gz#titan-cut');
INSERT INTO "exchanges" VALUES('no-count','2026-11-22 07:54:56.942009Z','settled','complete','live','http://llm.example:80','llm.example','openai.chat','chat','/v1/chat/completions','m','m','n1',0,'c571d7b026ecc868eaad643c1ae6abf4',NULL,0,0,200,'stop',NULL,NULL,NULL,NULL,'2026-11-22 07:54:56.946239Z',NULL,'2026-11-22 07:54:56.946397Z',63,307,307,0,'7338146264fb979baf52db73e3ebc57a9c62df515345aa310cbafb3f740dbf57','7338146264fb979baf52db73e3ebc57a9c62df515345aa310cbafb3f740dbf57',NULL,1,NULL,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}','host/28690/1795334089','captures/20261122T07-host-28690-1795334089.jsonl.gz#no-count');
INSERT INTO "exchanges" VALUES('incomplete','2026-11-22 07:54:56.959885Z','settled','complete','live','http://openrouter.ai:80','openrouter','openai.responses','chat','/api/v1/responses','gpt-5','gpt-5-2025','resp_1',0,'da1439378a2c4be785f78c505d9f5283',NULL,0,1,200,'incomplete:max_output_tokens',NULL,NULL,NULL,'default','2026-11-22 07:54:56.975416Z','2026-11-22 07:54:56.975416Z','2026-11-22 07:54:56.975985Z',49,883,883,0,'32c3bbbf0d01e84b4a5db2a3a586cb5104d656a7d36c26fa6a3eb5d352616c35','32c3bbbf0d01e84b4a5db2a3a586cb5104d656a7d36c26fa6a3eb5d352616c35',NULL,4,NULL,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}','host/28690/1795334089','captures/20261122T07-host-28690-1795334089.jsonl.gz#incomplete');
INSERT INTO "exchanges" VALUES('incomplete-none','2026-11-22 07:54:56.986664Z','settled','complete','live','http://api.openai.com:80','openai','openai.responses','chat','/v1/responses','gpt-5','gpt-5','resp_i',0,'01f50e44a2965f5cd96c4524f87d1867',NULL,0,0,200,'incomplete:None',NULL,NULL,NULL,NULL,'2026-11-22 07:54:56.991696Z',NULL,'2026-11-22 07:54:56.991817Z',33,228,228,0,'3862d5a99f15b1de79af47fecc88ae423fa600c7ef89fd151b1f5ec8d0e338eb','3862d5a99f15b1de79af47fecc88ae423fa600c7ef89fd151b1f5ec8d0e338eb',NULL,1,NULL,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}','host/28690/1795334089','captures/20261122T07-host-28690-1795334089.jsonl.gz#incomplete-none');
INSERT INTO "exchanges" VALUES('bedrock-mistral','2026-11-22 07:54:57.001608Z','settled','complete','live','http://bedrock-runtime.us-east-1.amazonaws.com:80','aws.bedrock','bedrock.invoke','chat','/model/mistral.mistral-7b-instruct-v0:2/invoke','mistral.mistral-7b-instruct-v0:2','mistral.mistral-7b-instruct-v0:2',NULL,0,NULL,NULL,0,0,200,NULL,NULL,NULL,NULL,NULL,'2026-11-22 07:54:57.004075Z',NULL,'2026-11-22 07:54:57.004161Z',16,72,72,0,'bdb8d9ccd3e58c873375bc3c1f38d7023d10d261ff4b103c322400a5ffd86c19','bdb8d9ccd3e58c873375bc3c1f38d7023d10d261ff4b103c322400a5ffd86c19',NULL,1,NULL,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}','host/28690/1795334089','captures/20261122T07-host-28690-1795334089.jsonl.gz#bedrock-mistral');
INSERT INTO "exchanges" VALUES('anthropic-complete','2026-11-22 07:54:57.019506Z','settled','complete','live','http://api.anthropic.com:80','anthropic','unknown','unknown','/v1/complete','claude-2.1','claude-2.1','compl_1',0,NULL,NULL,0,1,200,NULL,NULL,NULL,NULL,NULL,'2026-11-22 07:54:57.022954Z','2026-11-22 07:54:57.022954Z','2026-11-22 07:54:57.023254Z',107,288,288,0,'bad5a028395a72858f9d8bcc207330e02d4bd51db73775f256edcabbc4d8cdf1','bad5a028395a72858f9d8bcc207330e02d4bd51db73775f256edcabbc4d8cdf1',NULL,3,NULL,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}','host/28690/1795334089','captures/20261122T07-host-28690-1795334089.jsonl.gz#anthropic-complete');
INSERT INTO "exchanges" VALUES('databricks','2026-11-22 07:54:57.043118Z','settled','complete','live','http://adb-1.1.azuredatabricks.net:80','databricks','unknown','unknown','/serving-endpoints/my-llm/invocations',NULL,'meta-llama-3.3-70b','c-1',0,NULL,NULL,0,0,200,NULL,NULL,NULL,NULL,NULL,'2026-11-22 07:54:57.052635Z',NULL,'2026-11-22 07:54:57.052731Z',49,324,324,0,'aa006f0654106d01def82d407fafb23dfbcc00778ed9870c87f0937ec2dbdbc6','aa006f0654106d01def82d407fafb23dfbcc00778ed9870c87f0937ec2dbdbc6',NULL,1,NULL,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}','host/28690/1795334089','captures/20261122T07-host-28690-1795334089.jsonl.gz#databricks');
INSERT INTO "exchanges" VALUES('venice','2026-11-22 07:54:57.069472Z','settled','complete','live','http://api.venice.ai:80','venice','openai.chat','chat','/api/v1/chat/completions','v','m-1','chatcmpl-9',0,'2557a8ecc606c68550c1d6fbf54dadc6',NULL,0,1,200,'stop',NULL,NULL,NULL,NULL,'2026-11-22 07:54:57.075349Z','2026-11-22 07:54:57.075349Z','2026-11-22 07:54:57.075700Z',130,543,543,0,'f2288d923d1d6d1f8793ba6ea8355d5ad3677d637c6c8a33f8c7bdaa267f8dd9','f2288d923d1d6d1f8793ba6ea8355d5ad3677d637c6c8a33f8c7bdaa267f8dd9',NULL,4,1,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}','host/28690/1795334089','captures/20261122T07-host-28690-1795334089.jsonl.gz#venice');
INSERT INTO "exchanges" VALUES('replicate','2026-11-22 07:54:57.084925Z','settled','complete','live','http://api.replicate.com:80','replicate','replicate.predictions','text_completion','/v1/models/meta/llama-3/predictions',NULL,'meta/meta-llama-3-70b-instruct','gm3',0,NULL,NULL,0,0,200,'succeeded',NULL,NULL,NULL,NULL,'2026-11-22 07:54:57.095295Z',NULL,'2026-11-22 07:54:57.095389Z',27,314,314,0,'9a5ed7c455dc0b11b729cdcb146ba6311324de893af2c7b6e76f51d00d7d9ca8','9a5ed7c455dc0b11b729cdcb146ba6311324de893af2c7b6e76f51d00d7d9ca8',NULL,1,NULL,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}','host/28690/1795334089','captures/20261122T07-host-28690-1795334089.jsonl.gz#replicate');
INSERT INTO "exchanges" VALUES('blank-before-colon','2026-11-22 07:54:57.104154Z','settled','upstream_cut','live','http://api.openai.com:80','openai','openai.responses','chat','/v1/responses','gpt-5','gpt-5-2025','resp_1',0,NULL,NULL,0,1,200,NULL,NULL,NULL,NULL,NULL,'2026-11-22 07:54:57.115165Z','2026-11-22 07:54:57.115313Z','2026-11-22 07:54:57.115975Z',49,1408,1408,0,'87c38be1fc29c3771742a229e96be9387bd797e513d4ce046ed6829b3dc556b5','87c38be1fc29c3771742a229e96be9387bd797e513d4ce046ed6829b3dc556b5',NULL,10,NULL,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}','host/28690/1795334089','captures/20261122T07-host-28690-1795334089.jsonl.gz#blank-before-colon');
INSERT INTO "exchanges" VALUES('escaped-keys','2026-11-22 07:54:57.125906Z','settled','complete','live','http://api.groq.com:80','groq','openai.chat','chat','/openai/v1/chat/completions','llama-3','llama-3','c-1',0,NULL,NULL,0,1,200,'stop',NULL,NULL,NULL,NULL,'2026-11-22 07:54:57.140193Z','2026-11-22 07:54:57.140193Z','2026-11-22 07:54:57.140686Z',85,321,321,0,'2e0e7bd69e4536b8f6d12668de302089c0122b2860214166950294259d26c8e2','2e0e7bd69e4536b8f6d12668de302089c0122b2860214166950294259d26c8e2',NULL,4,NULL,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}','host/28690/1795334089','captures/20261122T07-host-28690-1795334089.jsonl.gz#escaped-keys');
INSERT INTO "exchanges" VALUES('cut-inside-a-frame','2026-11-22 07:54:57.148305Z','settled','complete','live','http://llm.example:80','llm.example','openai.chat','chat','/v1/chat/completions','m',NULL,'stream:chat:0b7b3a6e-3f0c-4a55-9d1b-0e8b1a5f8d11',0,NULL,NULL,0,1,200,NULL,NULL,NULL,NULL,NULL,'2026-11-22 07:54:57.159076Z','2026-11-22 07:54:57.159076Z','2026-11-22 07:54:57.159461Z',79,252,252,0,'763a97af29ec2232f3e079d5a163bfc5f671f0dceb053995a5b4296dff88c9e1','763a97af29ec2232f3e079d5a163bfc5f671f0dceb053995a5b4296dff88c9e1',NULL,2,NULL,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}','host/28690/1795334089','captures/20261122T07-host-28690-1795334089.jsonl.gz#cut-inside-a-frame');
INSERT INTO "exchanges" VALUES('reset','2026-11-22 07:54:57.171004Z','settled','complete','live','http://llm.example:80','llm.example','openai.chat','chat','/v1/chat/completions','m',NULL,'stream:chat:0b7b3a6e-3f0c-4a55-9d1b-0e8b1a5f8d12',0,NULL,NULL,0,1,200,NULL,NULL,NULL,NULL,NULL,'2026-11-22 07:54:57.175375Z','2026-11-22 07:54:57.175375Z','2026-11-22 07:54:57.175834Z',79,169,169,0,'dcb7273d24d69125ed96f95dd2ab2930ea98e22af1e918ce48bcba6908c0e3e1','dcb7273d24d69125ed96f95dd2ab2930ea98e22af1e918ce48bcba6908c0e3e1',NULL,1,NULL,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}','host/28690/1795334089','captures/20261122T07-host-28690-1795334089.jsonl.gz#reset');
INSERT INTO "exchanges" VALUES('closed','2026-11-22 07:54:57.180289Z','settled','complete','live','http://llm.example:80','llm.example','openai.chat','chat','/v1/chat/completions','m',NULL,'stream:chat:0b7b3a6e-3f0c-4a55-9d1b-0e8b1a5f8d13',0,NULL,NULL,0,1,200,NULL,NULL,NULL,NULL,NULL,'2026-11-22 07:54:57.195957Z','2026-11-22 07:54:57.195957Z','2026-11-22 07:54:57.196312Z',79,169,169,0,'09215aa1bce02062a4b72b7edad7e05f782f61817c50a7715cc4e5e2eb2c34c6','09215aa1bce02062a4b72b7edad7e05f782f61817c50a7715cc4e5e2eb2c34c6',NULL,1,NULL,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}','host/28690/1795334089','captures/20261122T07-host-28690-1795334089.jsonl.gz#closed');
INSERT INTO "exchanges" VALUES('no-usage','2026-11-22 07:54:57.228772Z','settled','complete','live','http://gateway.example:80','gateway.example','openai.chat','chat','/v1/chat/completions','m','m','c-2',0,NULL,NULL,0,1,200,'stop',NULL,NULL,NULL,NULL,'2026-11-22 07:54:57.239782Z','2026-11-22 07:54:57.239782Z','2026-11-22 07:54:57.242664Z',79,202,202,0,'2c939ec9251f81031570951f2e20f4ae7118f8e9d5db5514b8b902d77616a5ad','2c939ec9251f81031570951f2e20f4ae7118f8e9d5db5514b8b902d77616a5ad',NULL,3,NULL,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}','host/28690/1795334089','captures/20261122T07-host-28690-1795334089.jsonl.gz#no-usage');
INSERT INTO "exchanges" VALUES('duplicate-keys','2026-11-22 07:54:57.255716Z','settled','complete','live','http://llm.example:80','llm.example','openai.chat','chat','/v1/chat/completions','m','m','c-3',0,'b08c830e323d9e16c58aaa9c9b2b428a',NULL,0,0,200,'stop',NULL,NULL,NULL,NULL,'2026-11-22 07:54:57.275785Z',NULL,'2026-11-22 07:54:57.275958Z',63,217,217,0,'ebe80d3ec328cb9f66e1a98f8b63d2e9987b6dd1543757c40e3a6212ef7f720a','ebe80d3ec328cb9f66e1a98f8b63d2e9987b6dd1543757c40e3a6212ef7f720a',NULL,1,NULL,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}','host/28690/1795334089','captures/20261122T07-host-28690-1795334089.jsonl.gz#duplicate-keys');
INSERT INTO "exchanges" VALUES('speech','2026-11-22 07:54:57.300688Z','settled','complete','live','http://api.openai.com:80','openai','openai.audio','audio','/v1/audio/speech','tts-1',NULL,NULL,0,NULL,NULL,0,0,200,NULL,NULL,NULL,NULL,NULL,'2026-11-22 07:54:57.307903Z',NULL,'2026-11-22 07:54:57.308036Z',60,20,20,0,'27bcb9e8840262151723ad63edf27cbab63d0e4c45d6283ba1c853d210f2e58d','27bcb9e8840262151723ad63edf27cbab63d0e4c45d6283ba1c853d210f2e58d',NULL,0,NULL,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}','host/28690/1795334089','captures/20261122T07-host-28690-1795334089.jsonl.gz#speech');
INSERT INTO "exchanges" VALUES('form','2026-11-22 07:54:57.325302Z','settled','complete','live','http://forms.example:80','forms.example','openai.responses','chat','/api/forms/7/responses',NULL,NULL,'77',0,NULL,NULL,0,0,200,'received',NULL,NULL,NULL,NULL,'2026-11-22 07:54:57.340142Z',NULL,'2026-11-22 07:54:57.340264Z',20,31,31,0,'110f4b4da2e5c0ac98f1bafe5cd53e3882283a620581ade8d34217e948554f21','110f4b4da2e5c0ac98f1bafe5cd53e3882283a620581ade8d34217e948554f21',NULL,1,NULL,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}','host/28690/1795334089','captures/20261122T07-host-28690-1795334089.jsonl.gz#form');
INSERT INTO "exchanges" VALUES('injected','2026-11-22 07:54:57.367455Z','settled','complete','live','http://api.openai.com:80','openai','openai.chat','chat','/v1/chat/completions','gpt-5','gpt-5','c-4',0,'800eaea51e94c296b6f1c7d290947e0c',NULL,0,1,200,'stop',NULL,NULL,NULL,NULL,'2026-11-22 07:54:57.380131Z','2026-11-22 07:54:57.380131Z','2026-11-22 07:54:57.380590Z',83,381,193,188,'44a0b83245037bf251687a466b4eaafc6216a013a93db88a91da9a50ce1e7d57','c7d4608af489ba046284bea9d0e658a9661aae841f7f53d3d47f79caff66afc7','54c69495a02ee108b5fcd5ccb110022ec6aa432c589f6e0372abeeaa4fe33edd',4,NULL,1,1,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}','host/28690/1795334089','captures/20261122T07-host-28690-1795334089.jsonl.gz#injected');
INSERT INTO "exchanges" VALUES('anthropic-cut','2026-11-22 07:54:57.401641Z','settled','upstream_cut','live','http://api.anthropic.com:80','anthropic','anthropic.messages','chat','/v1/messages','claude-sonnet-4-6','claude-sonnet-4-6','msg_1',0,'7110f70279b4d081009f69a95a26d77f',NULL,0,1,200,NULL,'transport',NULL,'HTTP/1 protocol error: peer closed connection without sending complete message body (incomplete chunked read)',NULL,'2026-11-22 07:54:57.425656Z','2026-11-22 07:54:57.425693Z','2026-11-22 07:54:57.426167Z',112,332,332,0,'22518ce527e0b7f87d8c1bcecc78ff0e5c57f26db19c597170b67f73f385725e','22518ce527e0b7f87d8c1bcecc78ff0e5c57f26db19c597170b67f73f385725e',NULL,2,NULL,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}','host/28690/1795334089','captures/20261122T07-host-28690-1795334089.jsonl.gz#anthropic-cut');
INSERT INTO "exchanges" VALUES('2a449f4f0ef97a93e837d1932a1cc142','2026-11-22 07:54:58.412866Z','settled','complete','replay','https://generativelanguage.googleapis.com:443','gcp.gemini','openai.chat','chat','/v1beta/openai/chat/completions','gemini-2.5-flash','gemini-2.5-flash','g3',0,'44c8ac5f46c9a01ce3e551222a269c8e',NULL,0,0,200,'stop',NULL,NULL,NULL,NULL,NULL,NULL,'2026-11-22 07:54:58.412866Z',78,202,202,0,'4539b8e8d7f04c81d1053c1cee53fe7937d3bdbd0beb66b8d502335588213583','4539b8e8d7f04c81d1053c1cee53fe7937d3bdbd0beb66b8d502335588213583',NULL,1,NULL,0,0,0,NULL,NULL,NULL,NULL,NULL,NULL,'{}','replay/28762/1795334103','/recordings/lines.jsonl#line-without-an-id');
CREATE TABLE hourly (
	day DATE NOT NULL, 
	hour TEXT NOT NULL, 
	opened BIGINT NOT NULL, 
	still_open BIGINT NOT NULL, 
	settled BIGINT NOT NULL, 
	lost BIGINT NOT NULL, 
	without_usage BIGINT NOT NULL, 
	estimated BIGINT NOT NULL, 
	errors BIGINT NOT NULL, 
	degraded BIGINT NOT NULL, 
	duplicates BIGINT NOT NULL, 
	CONSTRAINT pk_hourly PRIMARY KEY (hour)
);
CREATE TABLE learned (
	origin TEXT NOT NULL, 
	path TEXT NOT NULL, 
	verdict TEXT NOT NULL, 
	learned_at TEXT NOT NULL, 
	expires_at TEXT NOT NULL, 
	CONSTRAINT pk_learned PRIMARY KEY (origin, path)
);
INSERT INTO "learned" VALUES('http://llm.example:80','/v1/chat/completions','automatic','2026-11-22 07:54:57.148305Z','2026-12-22 07:54:57.148305Z');
INSERT INTO "learned" VALUES('http://gateway.example:80','/v1/chat/completions','opt_in','2026-11-22 07:54:57.228772Z','2026-11-29 07:54:57.228772Z');
CREATE TABLE meta (
	"key" TEXT NOT NULL, 
	value TEXT NOT NULL, 
	CONSTRAINT pk_meta PRIMARY KEY ("key")
);
INSERT INTO "meta" VALUES('secret','0000000000000000000000000000000000000000000000000000000000000000');
CREATE TABLE nodes (
	node TEXT NOT NULL, 
	seen_at TEXT NOT NULL, 
	CONSTRAINT pk_nodes PRIMARY KEY (node)
);
CREATE TABLE outbox (
	seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	exchange_id TEXT NOT NULL, 
	opened_at TEXT NOT NULL
);
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
	reason TEXT, 
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
INSERT INTO "readings" VALUES('49c841704d5820003d321f9b0a0ff932','dashscope-chat','2026-11-22 07:54:54.403546Z',1,'1','reported',2071,0,NULL,NULL,NULL,5,NULL,NULL,NULL,'{}','[]','[]','{"prompt_tokens":2071,"completion_tokens":5,"total_tokens":2076,"prompt_tokens_details":{"cached_tokens":0,"cache_creation_input_tokens":2048,"cache_type":"ephemeral","cache_creation":{"ephemeral_5m_input_tokens":2048}}}',NULL,NULL,NULL,NULL,'2026-11-22 07:54:54.417919Z',NULL);
INSERT INTO "readings" VALUES('f13ec7eb3b389828680d91c229e00c25','dashscope-responses','2026-11-22 07:54:54.445859Z',1,'1','reported',2071,0,NULL,NULL,NULL,5,NULL,NULL,NULL,'{}','[]','[]','{"input_tokens":2071,"output_tokens":5,"total_tokens":2076,"input_tokens_details":{"cached_tokens":0},"x_details":[{"input_tokens":2071,"output_tokens":5,"prompt_tokens_details":{"cache_creation_input_tokens":2048,"cache_creation":{"ephemeral_5m_input_tokens":2048}}}]}',NULL,NULL,NULL,NULL,'2026-11-22 07:54:54.456490Z',NULL);
INSERT INTO "readings" VALUES('baa03237bc2597e276e05772198ffc6f','charm-hyper','2026-11-22 07:54:54.474532Z',1,'1','reported',10,NULL,NULL,NULL,NULL,2,NULL,NULL,NULL,'{}','[]','[]','{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12,"cost":{"usd":0.000123}}',NULL,NULL,NULL,NULL,'2026-11-22 07:54:54.486134Z',NULL);
INSERT INTO "readings" VALUES('9133fe707496d42f3e03bd6228f02f8a','gemini-thoughts','2026-11-22 07:54:54.512331Z',1,'1','reported',7,NULL,NULL,NULL,NULL,12,NULL,NULL,NULL,'{}','[]','[]','{"prompt_tokens":7,"completion_tokens":12,"total_tokens":402}',NULL,NULL,NULL,NULL,'2026-11-22 07:54:54.522533Z',NULL);
INSERT INTO "readings" VALUES('587562b20d013091ad4326e40ad4cc71','mistral-audio','2026-11-22 07:54:54.539628Z',1,'1','reported',4,NULL,NULL,NULL,NULL,1073,NULL,NULL,NULL,'{"audio_milliseconds":330000}','[]','[]','{"prompt_tokens":4,"completion_tokens":1073,"total_tokens":5202,"prompt_audio_seconds":330}',NULL,NULL,NULL,NULL,'2026-11-22 07:54:54.552948Z',NULL);
INSERT INTO "readings" VALUES('95aa22eba53f5c5d5c896464844ba7ba','volcengine-bot','2026-11-22 07:54:54.569570Z',1,'1','none',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{}','[]','[]',NULL,NULL,NULL,NULL,NULL,'2026-11-22 07:54:54.584573Z',NULL);
INSERT INTO "readings" VALUES('333cfbcd5c78984c281a45cf154aff27','gigachat','2026-11-22 07:54:54.607459Z',1,'1','reported',1,NULL,NULL,NULL,NULL,4,NULL,NULL,NULL,'{}','[]','[]','{"prompt_tokens":1,"completion_tokens":4,"total_tokens":5,"precached_prompt_tokens":37}',NULL,NULL,NULL,NULL,'2026-11-22 07:54:54.620627Z',NULL);
INSERT INTO "readings" VALUES('4a204cf58752241a909d0e401c42b93a','watsonx','2026-11-22 07:54:54.642897Z',1,'1','none',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{}','[]','[]',NULL,NULL,NULL,NULL,NULL,'2026-11-22 07:54:54.652676Z',NULL);
INSERT INTO "readings" VALUES('730c9507c3a7cf05c8332a1406b73e3c','titan-cut','2026-11-22 07:54:56.918455Z',1,'1','none',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{}','[]','[]',NULL,NULL,NULL,NULL,NULL,'2026-11-22 07:54:56.936703Z',NULL);
INSERT INTO "readings" VALUES('ee408a166f5455b5eb56dbf1f60ada9f','no-count','2026-11-22 07:54:56.942009Z',1,'1','reported',1,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{}','[]','["prompt_tokens is no count: ''1234567890123456789012345678901234567890''"]','{"prompt_tokens":1234567890123456789012345678901234567890,"total_tokens":1}',NULL,NULL,NULL,NULL,'2026-11-22 07:54:56.946397Z',NULL);
INSERT INTO "readings" VALUES('0d7af42135dc74f341cf84ea68fba9c7','incomplete','2026-11-22 07:54:56.959885Z',1,'1','reported',21,0,NULL,NULL,NULL,6,0,NULL,NULL,'{}','[]','[]','{"input_tokens":21,"input_tokens_details":{"cached_tokens":0},"output_tokens":6,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":27,"cost":0.0000285,"is_byok":false,"cost_details":{"upstream_inference_cost":0.0000285}}',NULL,28500000,28500000,0,'2026-11-22 07:54:56.975985Z',NULL);
INSERT INTO "readings" VALUES('60d66f554d644191fafe48f7990f9488','incomplete-none','2026-11-22 07:54:56.986664Z',1,'1','reported',3,NULL,NULL,NULL,NULL,4,NULL,NULL,NULL,'{}','[]','[]','{"input_tokens":3,"output_tokens":4,"total_tokens":7}',NULL,NULL,NULL,NULL,'2026-11-22 07:54:56.991817Z',NULL);
INSERT INTO "readings" VALUES('300e7039879a7e5d4cfb27da155ef02b','bedrock-mistral','2026-11-22 07:54:57.001608Z',1,'1','reported',5,NULL,NULL,NULL,NULL,2,NULL,NULL,NULL,'{}','[]','[]','{"header:x-amzn-bedrock-input-token-count":5,"header:x-amzn-bedrock-output-token-count":2}',NULL,NULL,NULL,NULL,'2026-11-22 07:54:57.004161Z',NULL);
INSERT INTO "readings" VALUES('016ca5e03346b09aa6654a8a6bec85d5','anthropic-complete','2026-11-22 07:54:57.019506Z',1,'1','none',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{}','[]','[]',NULL,NULL,NULL,NULL,NULL,'2026-11-22 07:54:57.023254Z',NULL);
INSERT INTO "readings" VALUES('cb9fd975793dfaca1b1b5a0c925e67a4','databricks','2026-11-22 07:54:57.043118Z',1,'1','none',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{}','[]','[]',NULL,NULL,NULL,NULL,NULL,'2026-11-22 07:54:57.052731Z',NULL);
INSERT INTO "readings" VALUES('d4b5b9e468bd27eb403017e6ba2461cc','venice','2026-11-22 07:54:57.069472Z',1,'1','reported',20,NULL,NULL,NULL,NULL,5,NULL,NULL,NULL,'{}','[]','[]','{"prompt_tokens":20,"completion_tokens":5,"total_tokens":25}',NULL,580800000,NULL,NULL,'2026-11-22 07:54:57.075700Z',NULL);
INSERT INTO "readings" VALUES('d26e315d2df1726ca3042e6a381f2687','replicate','2026-11-22 07:54:57.084925Z',1,'1','none',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{}','[]','[]',NULL,NULL,NULL,NULL,NULL,'2026-11-22 07:54:57.095389Z',NULL);
INSERT INTO "readings" VALUES('f3e8b3c40fbefcad011fc766fcd16969','blank-before-colon','2026-11-22 07:54:57.104154Z',1,'1','estimated',12,NULL,NULL,NULL,NULL,9,NULL,NULL,NULL,'{}','[]','[]',NULL,9,NULL,NULL,NULL,'2026-11-22 07:54:57.115975Z',NULL);
INSERT INTO "readings" VALUES('c03a186185853dd6d9f43a8b77a2d287','escaped-keys','2026-11-22 07:54:57.125906Z',1,'1','none',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{}','[]','[]',NULL,4,NULL,NULL,NULL,'2026-11-22 07:54:57.140686Z',NULL);
INSERT INTO "readings" VALUES('eeb768d88ef9b57d158adb01c1171317','cut-inside-a-frame','2026-11-22 07:54:57.148305Z',1,'1','none',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{}','[]','[]',NULL,4,NULL,NULL,NULL,'2026-11-22 07:54:57.159461Z',NULL);
INSERT INTO "readings" VALUES('a5a4ba6e3ace034192c4a91e1bedecb6','reset','2026-11-22 07:54:57.171004Z',1,'1','none',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{}','[]','[]',NULL,4,NULL,NULL,NULL,'2026-11-22 07:54:57.175834Z',NULL);
INSERT INTO "readings" VALUES('28a9360ee08f096550bbabe483c88fb3','closed','2026-11-22 07:54:57.180289Z',1,'1','none',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{}','[]','[]',NULL,4,NULL,NULL,NULL,'2026-11-22 07:54:57.196312Z',NULL);
INSERT INTO "readings" VALUES('211c83cca5bcef40ecf11359d258975e','no-usage','2026-11-22 07:54:57.228772Z',1,'1','none',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{}','[]','[]',NULL,4,NULL,NULL,NULL,'2026-11-22 07:54:57.242664Z',NULL);
INSERT INTO "readings" VALUES('f54e501ac1dea994d8d341d4dbc3591f','duplicate-keys','2026-11-22 07:54:57.255716Z',1,'1','reported',9,NULL,NULL,NULL,NULL,2,NULL,NULL,NULL,'{}','[]','[]','{"prompt_tokens":9,"completion_tokens":2.0,"total_tokens":11,"xt":1}',NULL,NULL,NULL,NULL,'2026-11-22 07:54:57.275958Z',NULL);
INSERT INTO "readings" VALUES('d5403bfbdf865f89e0fb2b41e6ae1e61','speech','2026-11-22 07:54:57.300688Z',1,'1','none',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{}','[]','[]',NULL,NULL,NULL,NULL,NULL,'2026-11-22 07:54:57.308036Z',NULL);
INSERT INTO "readings" VALUES('fee44c087e7607660c855d9158942997','form','2026-11-22 07:54:57.325302Z',1,'1','none',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{}','[]','[]',NULL,NULL,NULL,NULL,NULL,'2026-11-22 07:54:57.340264Z',NULL);
INSERT INTO "readings" VALUES('76d521313bd43b7513da2a06df220a4e','injected','2026-11-22 07:54:57.367455Z',1,'1','reported',12,4,NULL,NULL,NULL,3,NULL,NULL,NULL,'{}','[]','[]','{"prompt_tokens":12,"completion_tokens":3,"total_tokens":15,"prompt_tokens_details":{"cached_tokens":4}}',NULL,NULL,NULL,NULL,'2026-11-22 07:54:57.380590Z',NULL);
INSERT INTO "readings" VALUES('74d57c9be17f86ca946f1715705ec22a','anthropic-cut','2026-11-22 07:54:57.401641Z',1,'1','partial',28,7,0,NULL,NULL,1,NULL,NULL,NULL,'{}','[]','[]','{"input_tokens":21,"cache_creation_input_tokens":0,"cache_read_input_tokens":7,"output_tokens":1}',1,NULL,NULL,NULL,'2026-11-22 07:54:57.426167Z',NULL);
INSERT INTO "readings" VALUES('f17e8d8eecedf5b8bf901155f76e5062','2a449f4f0ef97a93e837d1932a1cc142','2026-11-22 07:54:58.412866Z',1,'1','reported',35,NULL,NULL,NULL,NULL,12,NULL,NULL,NULL,'{}','[]','[]','{"prompt_tokens":35,"completion_tokens":12,"total_tokens":109}',NULL,NULL,NULL,NULL,'2026-11-22 07:55:03.823479Z',NULL);
CREATE TABLE set_aside (
	exchange_id TEXT NOT NULL, 
	opened_at TEXT NOT NULL, 
	error TEXT NOT NULL, 
	refused_at TEXT NOT NULL, 
	CONSTRAINT pk_set_aside PRIMARY KEY (opened_at, exchange_id)
);
CREATE TABLE stale_days (
	day DATE NOT NULL, 
	starts_at TEXT NOT NULL, 
	ends_at TEXT NOT NULL, 
	writes BIGINT NOT NULL, 
	CONSTRAINT pk_stale_days PRIMARY KEY (day)
);
CREATE INDEX ix_exchanges_id ON exchanges (id);
CREATE INDEX ix_exchanges_response_id ON exchanges (response_id, origin, id_collision, content_digest, opened_at, id) WHERE response_id IS NOT NULL;
CREATE INDEX ix_exchanges_open ON exchanges (node) WHERE state = 'open';
CREATE INDEX ix_exchanges_session_id ON exchanges (session_id, opened_at) WHERE session_id IS NOT NULL;
CREATE INDEX ix_exchanges_key_fingerprint ON exchanges (key_fingerprint, opened_at);
CREATE INDEX ix_charges_revised ON charges (opened_at, exchange_id, reading_id) WHERE revision > 1;
CREATE INDEX ix_charges_further ON charges (opened_at, exchange_id, reading_id) WHERE line LIKE '%.%';
CREATE INDEX ix_charges_unpriced ON charges (opened_at, exchange_id, reading_id) WHERE amount_picousd IS NULL;
CREATE TRIGGER exchanges_settled BEFORE UPDATE OF 
    state, outcome, source, origin, provider, dialect, operation, path, request_model,
    response_model, response_id, id_unstable, content_digest, streamed, http_status,
    finish_reason, error_type, error_code, error_message, service_tier, first_byte_at,
    first_token_at, settled_at, request_bytes, response_bytes, client_bytes, removed_bytes,
    upstream_digest, client_digest, removed_digest, events, usage_asked, usage_injected,
    usage_stripped, resent, degraded, key_fingerprint, key_hint, user_agent, end_user,
    session_id, tags, node, capture
 ON exchanges WHEN OLD.state = 'settled' OR (OLD.state = 'lost' AND NEW.state <> 'settled') BEGIN SELECT RAISE(ABORT, 'a settled exchange does not change'); END;
CREATE TRIGGER exchanges_identity BEFORE UPDATE OF id, opened_at ON exchanges BEGIN SELECT RAISE(ABORT, 'id and opened_at of an exchange do not change'); END;
CREATE TRIGGER readings_append_only BEFORE UPDATE ON readings BEGIN SELECT RAISE(ABORT, 'readings are append-only'); END;
CREATE TRIGGER charges_append_only BEFORE UPDATE ON charges BEGIN SELECT RAISE(ABORT, 'charges are append-only'); END;
CREATE TRIGGER exchanges_kept BEFORE DELETE ON exchanges WHEN NOT EXISTS (SELECT 1 FROM meta WHERE key = 'retention') BEGIN SELECT RAISE(ABORT, 'exchanges are only dropped by retention'); END;
CREATE TRIGGER exchanges_not_replaced BEFORE INSERT ON exchanges WHEN EXISTS (SELECT 1 FROM exchanges WHERE opened_at = NEW.opened_at AND id = NEW.id AND state = 'settled') BEGIN SELECT RAISE(IGNORE); END;
CREATE TRIGGER readings_kept BEFORE DELETE ON readings WHEN NOT EXISTS (SELECT 1 FROM meta WHERE key = 'retention') BEGIN SELECT RAISE(ABORT, 'readings are only dropped by retention'); END;
CREATE TRIGGER readings_not_replaced BEFORE INSERT ON readings WHEN EXISTS (SELECT 1 FROM readings WHERE opened_at = NEW.opened_at AND exchange_id = NEW.exchange_id AND id = NEW.id) BEGIN SELECT RAISE(IGNORE); END;
CREATE TRIGGER charges_kept BEFORE DELETE ON charges WHEN NOT EXISTS (SELECT 1 FROM meta WHERE key = 'retention') BEGIN SELECT RAISE(ABORT, 'charges are only dropped by retention'); END;
CREATE TRIGGER charges_not_replaced BEFORE INSERT ON charges WHEN EXISTS (SELECT 1 FROM charges WHERE opened_at = NEW.opened_at AND exchange_id = NEW.exchange_id AND reading_id = NEW.reading_id AND ordinal = NEW.ordinal AND revision = NEW.revision AND id = NEW.id) BEGIN SELECT RAISE(IGNORE); END;
CREATE VIEW requests AS
SELECT
  e.id, e.response_id, e.opened_at, e.state, e.outcome, e.source,
  e.origin, e.provider, e.dialect, e.operation, e.path,
  COALESCE(NULLIF(e.response_model, ''), NULLIF(e.request_model, '')) AS model, e.request_model, e.response_model, e.streamed,
  e.http_status, e.finish_reason, e.error_type, e.error_code, e.error_message, e.service_tier,
  e.first_byte_at, e.first_token_at, e.settled_at,
  CAST(ROUND((julianday(e.first_token_at) - julianday(e.opened_at)) * 86400000) AS INTEGER) AS first_token_ms,
  CAST(ROUND((julianday(e.settled_at) - julianday(e.opened_at)) * 86400000) AS INTEGER) AS duration_ms,
  r.usage_source, r.input_tokens,
  CASE WHEN r.input_tokens - COALESCE(r.cache_read_tokens, 0) - COALESCE(r.cache_write_tokens, 0) < 0 THEN 0 ELSE r.input_tokens - COALESCE(r.cache_read_tokens, 0) - COALESCE(r.cache_write_tokens, 0) END AS uncached_input_tokens,
  r.cache_read_tokens, r.cache_write_tokens, r.cache_write_5m_tokens, r.cache_write_1h_tokens,
  r.output_tokens, r.reasoning_tokens, r.input_audio_tokens, r.output_audio_tokens,
  r.estimated_output_tokens, r.tool_units,
  CAST((SELECT SUM(c.quantity) FROM charges c
    WHERE c.opened_at = e.opened_at AND c.exchange_id = e.id AND c.reading_id = r.id
      AND NOT EXISTS (
    SELECT 1 FROM charges n
    WHERE n.opened_at = c.opened_at AND n.exchange_id = c.exchange_id
      AND n.reading_id = c.reading_id AND n.ordinal = c.ordinal AND n.revision > 1
      AND (n.revision > c.revision OR (n.revision = c.revision AND n.id < c.id))) AND c.line LIKE '%.%' AND (c.line LIKE '%.uncached_input' OR c.line LIKE '%.cache_%' OR c.line LIKE '%.input_%')) AS INTEGER) AS extra_input_tokens,
  CAST((SELECT SUM(c.quantity) FROM charges c
    WHERE c.opened_at = e.opened_at AND c.exchange_id = e.id AND c.reading_id = r.id
      AND NOT EXISTS (
    SELECT 1 FROM charges n
    WHERE n.opened_at = c.opened_at AND n.exchange_id = c.exchange_id
      AND n.reading_id = c.reading_id AND n.ordinal = c.ordinal AND n.revision > 1
      AND (n.revision > c.revision OR (n.revision = c.revision AND n.id < c.id))) AND c.line LIKE '%.%' AND (c.line LIKE '%.output%' OR c.line LIKE '%.reasoning' OR c.line LIKE '%.citation')) AS INTEGER) AS extra_output_tokens,
  CAST((SELECT SUM(c.amount_picousd) FROM charges c
    WHERE c.opened_at = e.opened_at AND c.exchange_id = e.id AND c.reading_id = r.id
      AND NOT EXISTS (
    SELECT 1 FROM charges n
    WHERE n.opened_at = c.opened_at AND n.exchange_id = c.exchange_id
      AND n.reading_id = c.reading_id AND n.ordinal = c.ordinal AND n.revision > 1
      AND (n.revision > c.revision OR (n.revision = c.revision AND n.id < c.id)))) AS INTEGER) AS cost_picousd,
  ROUND((SELECT SUM(c.amount_picousd) FROM charges c
    WHERE c.opened_at = e.opened_at AND c.exchange_id = e.id AND c.reading_id = r.id
      AND NOT EXISTS (
    SELECT 1 FROM charges n
    WHERE n.opened_at = c.opened_at AND n.exchange_id = c.exchange_id
      AND n.reading_id = c.reading_id AND n.ordinal = c.ordinal AND n.revision > 1
      AND (n.revision > c.revision OR (n.revision = c.revision AND n.id < c.id)))) / 1e12, 12) AS cost_usd,
  (SELECT CASE
     WHEN COUNT(*) = 0 THEN CASE WHEN COALESCE(r.usage_source, 'none') = 'none' THEN NULL ELSE 'unpriced' END
     WHEN COUNT(c.amount_picousd) = 0 THEN 'unpriced'
     WHEN COUNT(c.amount_picousd) < COUNT(*) THEN 'partial'
     WHEN MIN(c.price_source) = 'provider' AND MAX(c.price_source) = 'provider' THEN 'reported'
     ELSE 'priced' END
   FROM charges c
    WHERE c.opened_at = e.opened_at AND c.exchange_id = e.id AND c.reading_id = r.id
      AND NOT EXISTS (
    SELECT 1 FROM charges n
    WHERE n.opened_at = c.opened_at AND n.exchange_id = c.exchange_id
      AND n.reading_id = c.reading_id AND n.ordinal = c.ordinal AND n.revision > 1
      AND (n.revision > c.revision OR (n.revision = c.revision AND n.id < c.id)))) AS cost_state,
  r.reported_cost_picousd, ROUND((r.reported_cost_picousd) / 1e12, 12) AS reported_cost_usd,
  r.reported_upstream_cost_picousd, r.is_byok,
  r.usage_json, r.remarks, r.id AS reading_id, r.revision AS reading_revision, r.meter_version,
  e.key_fingerprint, e.key_hint, e.user_agent, e.end_user, e.session_id, e.tags,
  e.usage_asked, e.usage_injected, e.usage_stripped, e.resent, e.degraded,
  e.request_bytes, e.response_bytes, e.client_bytes, e.removed_bytes, e.events,
  e.id_unstable, e.id_collision, e.node, e.capture
FROM exchanges e
LEFT JOIN readings r
  ON r.opened_at = e.opened_at AND r.exchange_id = e.id AND true
  AND NOT EXISTS (
    SELECT 1 FROM readings n
    WHERE n.opened_at = r.opened_at AND n.exchange_id = r.exchange_id
      AND (n.revision > r.revision OR (n.revision = r.revision
           AND (n.read_at < r.read_at OR (n.read_at = r.read_at AND n.id < r.id)))))
WHERE e.state <> 'open' AND e.duplicate_of IS NULL;
CREATE VIEW unpriced AS
SELECT
  c.opened_at, c.exchange_id, e.response_id, e.provider,
  COALESCE(c.model, COALESCE(NULLIF(e.response_model, ''), NULLIF(e.request_model, ''))) AS model, e.service_tier, c.line, c.quantity, c.reason
FROM charges c
JOIN exchanges e ON e.opened_at = c.opened_at AND e.id = c.exchange_id
JOIN readings r
  ON r.opened_at = e.opened_at AND r.exchange_id = e.id AND r.id = c.reading_id
  AND NOT EXISTS (
    SELECT 1 FROM readings n
    WHERE n.opened_at = r.opened_at AND n.exchange_id = r.exchange_id
      AND (n.revision > r.revision OR (n.revision = r.revision
           AND (n.read_at < r.read_at OR (n.read_at = r.read_at AND n.id < r.id)))))
WHERE c.amount_picousd IS NULL AND NOT EXISTS (
    SELECT 1 FROM charges n
    WHERE n.opened_at = c.opened_at AND n.exchange_id = c.exchange_id
      AND n.reading_id = c.reading_id AND n.ordinal = c.ordinal AND n.revision > 1
      AND (n.revision > c.revision OR (n.revision = c.revision AND n.id < c.id))) AND e.state <> 'open' AND e.duplicate_of IS NULL
UNION ALL
SELECT
  e.opened_at, e.id, e.response_id, e.provider, COALESCE(NULLIF(e.response_model, ''), NULLIF(e.request_model, '')), e.service_tier, NULL, NULL,
  'no line was charged'
FROM exchanges e
JOIN readings r
  ON r.opened_at = e.opened_at AND r.exchange_id = e.id AND true
  AND NOT EXISTS (
    SELECT 1 FROM readings n
    WHERE n.opened_at = r.opened_at AND n.exchange_id = r.exchange_id
      AND (n.revision > r.revision OR (n.revision = r.revision
           AND (n.read_at < r.read_at OR (n.read_at = r.read_at AND n.id < r.id)))))
WHERE r.usage_source <> 'none' AND e.state <> 'open' AND e.duplicate_of IS NULL
  AND NOT EXISTS (
    SELECT 1 FROM charges c
    WHERE c.opened_at = e.opened_at AND c.exchange_id = e.id AND c.reading_id = r.id);
CREATE INDEX ix_daily_day ON daily (day);
CREATE INDEX ix_hourly_day ON hourly (day);
CREATE VIEW live_daily AS
SELECT s.day AS stale_day, date(e.opened_at) AS day, e.provider, e.model, e.key_fingerprint, MAX(e.key_hint) AS key_hint,
  COUNT(*) AS requests,
  COUNT(CASE WHEN e.outcome IN ('error_frame', 'http_error') THEN 1 END) AS errors,
  COUNT(CASE WHEN COALESCE(e.usage_source, 'none') = 'none' THEN 1 END) AS without_usage,
  COUNT(CASE WHEN e.cost_state IN ('unpriced', 'partial') THEN 1 END) AS unpriced,
  CAST(SUM(CASE WHEN e.usage_source <> 'estimated' THEN e.input_tokens END) AS INTEGER) AS input_tokens,
  CAST(SUM(CASE WHEN e.usage_source <> 'estimated' THEN e.uncached_input_tokens END) AS INTEGER) AS uncached_input_tokens,
  CAST(SUM(CASE WHEN e.usage_source <> 'estimated' THEN e.cache_read_tokens END) AS INTEGER) AS cache_read_tokens,
  CAST(SUM(CASE WHEN e.usage_source <> 'estimated' THEN e.cache_write_tokens END) AS INTEGER) AS cache_write_tokens,
  CAST(SUM(CASE WHEN e.usage_source <> 'estimated' THEN e.cache_write_5m_tokens END) AS INTEGER) AS cache_write_5m_tokens,
  CAST(SUM(CASE WHEN e.usage_source <> 'estimated' THEN e.cache_write_1h_tokens END) AS INTEGER) AS cache_write_1h_tokens,
  CAST(SUM(CASE WHEN e.usage_source <> 'estimated' THEN e.output_tokens END) AS INTEGER) AS output_tokens,
  CAST(SUM(CASE WHEN e.usage_source <> 'estimated' THEN e.reasoning_tokens END) AS INTEGER) AS reasoning_tokens,
  CAST(SUM(CASE WHEN e.usage_source <> 'estimated' THEN e.extra_input_tokens END) AS INTEGER) AS extra_input_tokens,
  CAST(SUM(CASE WHEN e.usage_source <> 'estimated' THEN e.extra_output_tokens END) AS INTEGER) AS extra_output_tokens,
  CAST(SUM(CASE WHEN e.usage_source = 'estimated' THEN e.input_tokens END) AS INTEGER) AS estimated_input_tokens,
  CAST(SUM(CASE WHEN e.usage_source = 'estimated' THEN e.output_tokens ELSE e.estimated_output_tokens END) AS INTEGER) AS estimated_output_tokens,
  CAST(SUM(e.cost_picousd) AS INTEGER) AS cost_picousd,
  CAST(SUM(CASE WHEN e.usage_source <> 'estimated' AND e.cache_read_tokens IS NOT NULL THEN e.input_tokens END) AS INTEGER) AS cacheable_input_tokens
FROM (
    SELECT day, starts_at, ends_at FROM stale_days UNION ALL
    SELECT NULL, COALESCE((SELECT value FROM meta WHERE key = 'rolled_until'), ''), '9999') s
CROSS JOIN requests e ON e.opened_at >= s.starts_at AND e.opened_at < s.ends_at
GROUP BY s.day, date(e.opened_at), e.provider, e.model, e.key_fingerprint;
CREATE VIEW usage_daily AS
SELECT day, provider, model, key_fingerprint, key_hint, requests, errors, without_usage,
  input_tokens, uncached_input_tokens, cache_read_tokens, cache_write_tokens, cache_write_5m_tokens, cache_write_1h_tokens, output_tokens, reasoning_tokens, extra_input_tokens, extra_output_tokens, estimated_input_tokens, estimated_output_tokens,
  CAST(cache_read_tokens AS REAL) / NULLIF(cacheable_input_tokens, 0) AS cache_hit_rate,
  cost_picousd, ROUND(cost_picousd / 1e12, 12) AS cost_usd, unpriced
FROM (
SELECT d.day, provider, model, key_fingerprint, key_hint, requests, errors, without_usage, unpriced, input_tokens, uncached_input_tokens, cache_read_tokens, cache_write_tokens, cache_write_5m_tokens, cache_write_1h_tokens, output_tokens, reasoning_tokens, extra_input_tokens, extra_output_tokens, estimated_input_tokens, estimated_output_tokens, cost_picousd, cacheable_input_tokens FROM daily d WHERE NOT EXISTS (SELECT 1 FROM stale_days s WHERE s.day = d.day)
UNION ALL
SELECT day, provider, model, key_fingerprint, key_hint, requests, errors, without_usage, unpriced, input_tokens, uncached_input_tokens, cache_read_tokens, cache_write_tokens, cache_write_5m_tokens, cache_write_1h_tokens, output_tokens, reasoning_tokens, extra_input_tokens, extra_output_tokens, estimated_input_tokens, estimated_output_tokens, cost_picousd, cacheable_input_tokens FROM live_daily) u;
CREATE VIEW live_hourly AS
SELECT s.day AS stale_day, strftime('%Y-%m-%d %H:00:00.000000Z', e.opened_at) AS hour,
  COUNT(*) AS opened,
  COUNT(CASE WHEN e.state = 'open' THEN 1 END) AS still_open,
  COUNT(CASE WHEN e.state = 'settled' THEN 1 END) AS settled,
  COUNT(CASE WHEN e.state = 'lost' THEN 1 END) AS lost,
  COUNT(CASE WHEN e.state <> 'open' AND COALESCE(r.usage_source, 'none') = 'none' THEN 1 END) AS without_usage,
  COUNT(CASE WHEN r.usage_source = 'estimated' THEN 1 END) AS estimated,
  COUNT(CASE WHEN e.outcome IN ('error_frame', 'http_error') THEN 1 END) AS errors,
  COUNT(e.degraded) AS degraded,
  COUNT(e.duplicate_of) AS duplicates
FROM (
    SELECT day, starts_at, ends_at FROM stale_days UNION ALL
    SELECT NULL, COALESCE((SELECT value FROM meta WHERE key = 'rolled_until'), ''), '9999') s
CROSS JOIN exchanges e ON e.opened_at >= s.starts_at AND e.opened_at < s.ends_at
LEFT JOIN readings r ON r.opened_at = e.opened_at AND r.exchange_id = e.id
  AND NOT EXISTS (
    SELECT 1 FROM readings n
    WHERE n.opened_at = r.opened_at AND n.exchange_id = r.exchange_id
      AND (n.revision > r.revision OR (n.revision = r.revision
           AND (n.read_at < r.read_at OR (n.read_at = r.read_at AND n.id < r.id)))))
GROUP BY s.day, strftime('%Y-%m-%d %H:00:00.000000Z', e.opened_at);
CREATE VIEW completeness AS
SELECT d.hour, opened, still_open, settled, lost, without_usage, estimated, errors, degraded, duplicates FROM hourly d WHERE NOT EXISTS (SELECT 1 FROM stale_days s WHERE s.day = d.day)
UNION ALL
SELECT hour, opened, still_open, settled, lost, without_usage, estimated, errors, degraded, duplicates FROM live_hourly;
CREATE TRIGGER exchanges_added_late AFTER INSERT ON exchanges WHEN  NEW.opened_at < (SELECT value FROM meta WHERE key = 'rolled_until') BEGIN 
  INSERT INTO stale_days (day, starts_at, ends_at, writes)
  VALUES (date(NEW.opened_at), strftime('%Y-%m-%d 00:00:00.000000Z', NEW.opened_at),
          strftime('%Y-%m-%d 00:00:00.000000Z', NEW.opened_at, '+1 day'), 1)
  ON CONFLICT (day) DO UPDATE SET writes = writes + 1; END;
CREATE TRIGGER exchanges_changed_late AFTER UPDATE OF state, duplicate_of ON exchanges WHEN  NEW.opened_at < (SELECT value FROM meta WHERE key = 'rolled_until') BEGIN 
  INSERT INTO stale_days (day, starts_at, ends_at, writes)
  VALUES (date(NEW.opened_at), strftime('%Y-%m-%d 00:00:00.000000Z', NEW.opened_at),
          strftime('%Y-%m-%d 00:00:00.000000Z', NEW.opened_at, '+1 day'), 1)
  ON CONFLICT (day) DO UPDATE SET writes = writes + 1; END;
CREATE TRIGGER exchanges_dropped AFTER DELETE ON exchanges WHEN  OLD.opened_at < (SELECT value FROM meta WHERE key = 'rolled_until') BEGIN 
  INSERT INTO stale_days (day, starts_at, ends_at, writes)
  VALUES (date(OLD.opened_at), strftime('%Y-%m-%d 00:00:00.000000Z', OLD.opened_at),
          strftime('%Y-%m-%d 00:00:00.000000Z', OLD.opened_at, '+1 day'), 1)
  ON CONFLICT (day) DO UPDATE SET writes = writes + 1; END;
CREATE TRIGGER readings_added_late AFTER INSERT ON readings WHEN  NEW.opened_at < (SELECT value FROM meta WHERE key = 'rolled_until') BEGIN 
  INSERT INTO stale_days (day, starts_at, ends_at, writes)
  VALUES (date(NEW.opened_at), strftime('%Y-%m-%d 00:00:00.000000Z', NEW.opened_at),
          strftime('%Y-%m-%d 00:00:00.000000Z', NEW.opened_at, '+1 day'), 1)
  ON CONFLICT (day) DO UPDATE SET writes = writes + 1; END;
CREATE TRIGGER charges_added_late AFTER INSERT ON charges WHEN NEW.revision > 1 AND NEW.opened_at < (SELECT value FROM meta WHERE key = 'rolled_until') BEGIN 
  INSERT INTO stale_days (day, starts_at, ends_at, writes)
  VALUES (date(NEW.opened_at), strftime('%Y-%m-%d 00:00:00.000000Z', NEW.opened_at),
          strftime('%Y-%m-%d 00:00:00.000000Z', NEW.opened_at, '+1 day'), 1)
  ON CONFLICT (day) DO UPDATE SET writes = writes + 1; END;
DELETE FROM "sqlite_sequence";
COMMIT;
