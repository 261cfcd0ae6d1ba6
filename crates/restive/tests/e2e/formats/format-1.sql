/* A data file of format 1. The rows were made by a release of format 3; tables, columns and the
   description of the schema are those of format 1, as its release declared them. */
PRAGMA application_id = 1920169078;
PRAGMA user_version = 1;
BEGIN TRANSACTION;
CREATE TABLE meta (name TEXT PRIMARY KEY, value ANY) STRICT, WITHOUT ROWID;
INSERT INTO meta VALUES('cursor_key',X'14273832d326af7b6be18a17070f2556b67436c34b987d1654b4995676fc2842');
INSERT INTO meta VALUES('schema','{"collections":[{"name":"books","object":"book","id_prefix":"book","parent":null,"feed":false,"fields":[{"name":"title","kind":"string","required":true,"unique":false,"filter":true,"sort":true,"search":true,"reference":null,"write_only":false,"choices":[]},{"name":"author","kind":"string","required":false,"unique":false,"filter":false,"sort":false,"search":true,"reference":null,"write_only":false,"choices":[]}],"states":[],"state_field":null,"indexes":[],"shape":1},{"name":"reviews","object":"review","id_prefix":"review","parent":"books","feed":false,"fields":[{"name":"book","kind":"string","required":false,"unique":false,"filter":false,"sort":false,"search":false,"reference":"books","write_only":false,"choices":[]},{"name":"rating","kind":"integer","required":false,"unique":false,"filter":false,"sort":false,"search":false,"reference":null,"write_only":false,"choices":[]}],"states":[],"state_field":null,"indexes":[],"shape":1},{"name":"jobs","object":"job","id_prefix":"job","parent":null,"feed":false,"fields":[{"name":"note","kind":"string","required":false,"unique":false,"filter":false,"sort":false,"search":false,"reference":null,"write_only":false,"choices":[]},{"name":"status","kind":"string","required":false,"unique":false,"filter":true,"sort":false,"search":false,"reference":null,"write_only":false,"choices":["new","done"]}],"states":["new","done"],"state_field":"status","indexes":[],"shape":1},{"name":"accounts","object":"account","id_prefix":"acct","parent":null,"feed":false,"fields":[{"name":"name","kind":"string","required":false,"unique":false,"filter":false,"sort":false,"search":false,"reference":null,"write_only":false,"choices":[]},{"name":"api_version","kind":"string","required":false,"unique":false,"filter":false,"sort":false,"search":false,"reference":null,"write_only":false,"choices":[]}],"states":[],"state_field":null,"indexes":[],"shape":1},{"name":"keys","object":"key","id_prefix":"key","parent":null,"feed":false,"fields":[{"name":"digest","kind":"string","required":true,"unique":true,"filter":false,"sort":false,"search":false,"reference":null,"write_only":false,"choices":[]},{"name":"name","kind":"string","required":false,"unique":false,"filter":false,"sort":false,"search":false,"reference":null,"write_only":false,"choices":[]},{"name":"kind","kind":"string","required":false,"unique":false,"filter":false,"sort":false,"search":false,"reference":null,"write_only":false,"choices":["secret","restricted"]},{"name":"account","kind":"string","required":false,"unique":false,"filter":false,"sort":false,"search":false,"reference":null,"write_only":false,"choices":[]},{"name":"hint","kind":"string","required":false,"unique":false,"filter":false,"sort":false,"search":false,"reference":null,"write_only":false,"choices":[]},{"name":"scopes","kind":"array of string","required":false,"unique":false,"filter":false,"sort":false,"search":false,"reference":null,"write_only":false,"choices":[]},{"name":"rate_limit","kind":"integer","required":false,"unique":false,"filter":false,"sort":false,"search":false,"reference":null,"write_only":false,"choices":[]},{"name":"expires_at","kind":"timestamp","required":false,"unique":false,"filter":false,"sort":false,"search":false,"reference":null,"write_only":false,"choices":[]},{"name":"revoked_at","kind":"timestamp","required":false,"unique":false,"filter":false,"sort":false,"search":false,"reference":null,"write_only":false,"choices":[]}],"states":[],"state_field":null,"indexes":[],"shape":1}]}');
INSERT INTO meta VALUES('search_position',10);
CREATE TABLE log (
  seq INTEGER PRIMARY KEY, id TEXT NOT NULL, scope INTEGER NOT NULL, type TEXT NOT NULL,
  created INTEGER NOT NULL, collection TEXT NOT NULL, record TEXT NOT NULL,
  api_version TEXT NOT NULL, object TEXT NOT NULL, previous TEXT, request TEXT,
  idempotency_key TEXT) STRICT;
INSERT INTO log VALUES(1,'evt_06gyp0m7r3kdby6246ykdzx02bnaa',1,'account.created',1794944174016,'accounts','acct_06gyp0m7r06q2qvn1829xp7z6jq9m','2026-01-01','{"id":"acct_06gyp0m7r06q2qvn1829xp7z6jq9m","object":"account","name":"default","api_version":null,"created_at":"2026-11-17T19:36:14.016Z","updated_at":"2026-11-17T19:36:14.016Z"}',NULL,NULL,NULL);
INSERT INTO log VALUES(2,'evt_06gyp0m7ra8g4g4ks02sakzwfsb7j',2,'key.created',1794944174018,'keys','key_06gyp0m7ra41553k2khckda7qc6rr','2026-01-01','{"id":"key_06gyp0m7ra41553k2khckda7qc6rr","object":"key","digest":"89325b13b82248cf0aa6991f6225398be564269d7c745cc129dcada4c721151b","name":"bootstrap","kind":"secret","account":"acct_06gyp0m7r06q2qvn1829xp7z6jq9m","hint":"sk_test_end_to_end_…6789","scopes":[],"rate_limit":null,"expires_at":null,"revoked_at":null,"created_at":"2026-11-17T19:36:14.018Z","updated_at":"2026-11-17T19:36:14.018Z"}',NULL,NULL,NULL);
INSERT INTO log VALUES(3,'evt_06gyp0m833fbq1zvy446rzm13h3a2',1,'account.updated',1794944174104,'accounts','acct_06gyp0m7r06q2qvn1829xp7z6jq9m','2026-01-01','{"id":"acct_06gyp0m7r06q2qvn1829xp7z6jq9m","object":"account","name":"default","api_version":"2026-01-01","created_at":"2026-11-17T19:36:14.016Z","updated_at":"2026-11-17T19:36:14.104Z"}','{"api_version":null}',NULL,NULL);
INSERT INTO log VALUES(4,'evt_06gyp0m83t2w24fmd2wq1ayvx0bg8',2,'book.created',1794944174110,'books','book_06gyp0m83tnb47f7hmjprm78egx4c','2026-01-01','{"id":"book_06gyp0m83tnb47f7hmjprm78egx4c","object":"book","title":"Dune","author":"Frank Herbert","created_at":"2026-11-17T19:36:14.110Z","updated_at":"2026-11-17T19:36:14.110Z"}',NULL,'req_0404aa9b44bff9d30','old');
INSERT INTO log VALUES(5,'evt_06gyp0m84505qp52y7qxs2wn11vs0',2,'book.created',1794944174113,'books','book_06gyp0m8463v9yp7nbv4147d7v4pa','2026-01-01','{"id":"book_06gyp0m8463v9yp7nbv4147d7v4pa","object":"book","title":"Ema","author":"Jane Austen","created_at":"2026-11-17T19:36:14.113Z","updated_at":"2026-11-17T19:36:14.113Z"}',NULL,'req_0404aa9b44bff9d31',NULL);
INSERT INTO log VALUES(6,'evt_06gyp0m84y1e9pe2nnj9k28zwspw2',2,'book.updated',1794944174119,'books','book_06gyp0m8463v9yp7nbv4147d7v4pa','2026-01-01','{"id":"book_06gyp0m8463v9yp7nbv4147d7v4pa","object":"book","title":"Emma","author":"Jane Austen","created_at":"2026-11-17T19:36:14.113Z","updated_at":"2026-11-17T19:36:14.119Z"}','{"title":"Ema"}','req_0404aa9b44bff9d32',NULL);
INSERT INTO log VALUES(7,'evt_06gyp0m86f88vs3rvvxfwcqnzmhry',2,'review.created',1794944174131,'reviews','review_06gyp0m86d4zs1k2x0a4jrghxygwg','2026-01-01','{"id":"review_06gyp0m86d4zs1k2x0a4jrghxygwg","object":"review","book":"book_06gyp0m83tnb47f7hmjprm78egx4c","rating":5,"created_at":"2026-11-17T19:36:14.131Z","updated_at":"2026-11-17T19:36:14.131Z"}',NULL,'req_0404aa9b44bff9d33',NULL);
INSERT INTO log VALUES(8,'evt_06gyp0m86ttf56c1s13rdtwt7a9xa',2,'book.created',1794944174134,'books','book_06gyp0m86rmp2t6drhcfkzccg5tag','2026-01-01','{"id":"book_06gyp0m86rmp2t6drhcfkzccg5tag","object":"book","title":"Gone","author":"x","created_at":"2026-11-17T19:36:14.134Z","updated_at":"2026-11-17T19:36:14.134Z"}',NULL,'req_0404aa9b44bff9d34',NULL);
INSERT INTO log VALUES(9,'evt_06gyp0m870tn63bjjmzq5kpkhxxvt',2,'book.deleted',1794944174136,'books','book_06gyp0m86rmp2t6drhcfkzccg5tag','2026-01-01','{"id":"book_06gyp0m86rmp2t6drhcfkzccg5tag","object":"book","title":"Gone","author":"x","created_at":"2026-11-17T19:36:14.134Z","updated_at":"2026-11-17T19:36:14.134Z"}',NULL,'req_0404aa9b44bff9d35',NULL);
INSERT INTO log VALUES(10,'evt_06gyp0m87z25bzrzgamq62h47z9ae',2,'job.created',1794944174143,'jobs','job_06gyp0m87y9kcdpfy8wnff2ngvqae','2026-01-01','{"id":"job_06gyp0m87y9kcdpfy8wnff2ngvqae","object":"job","note":"waiting","status":"new","created_at":"2026-11-17T19:36:14.143Z","updated_at":"2026-11-17T19:36:14.143Z"}',NULL,'req_0404aa9b44bff9d36',NULL);
CREATE TABLE tombstones (
  id TEXT NOT NULL, collection TEXT NOT NULL, scope INTEGER NOT NULL, seq INTEGER NOT NULL,
  n INTEGER NOT NULL, PRIMARY KEY (id, collection)) STRICT, WITHOUT ROWID;
INSERT INTO tombstones VALUES('book_06gyp0m86rmp2t6drhcfkzccg5tag','books',2,9,8);
CREATE TABLE remembered (
  n INTEGER PRIMARY KEY, scope INTEGER NOT NULL, digest BLOB NOT NULL,
  fingerprint BLOB NOT NULL, created INTEGER NOT NULL, kind INTEGER NOT NULL,
  seq INTEGER NOT NULL, number INTEGER NOT NULL, updated INTEGER NOT NULL,
  record TEXT, text TEXT, request TEXT NOT NULL) STRICT;
INSERT INTO remembered VALUES(1,2,X'cba06b5736faf67e54b07b561eae9439',X'53f2209aa82ac5c325ceb384913f7388edea312cc42413fbe26a1618fabc647b',1794944174110,0,4,4,1794944174110,NULL,NULL,'req_0404aa9b44bff9d30');
CREATE TABLE timers (
  n INTEGER PRIMARY KEY, due INTEGER NOT NULL, scope INTEGER NOT NULL,
  collection TEXT NOT NULL, parent TEXT, record TEXT NOT NULL, transition TEXT NOT NULL) STRICT;
INSERT INTO timers VALUES(1,1767225600000,2,'jobs',NULL,'job_06gyp0m87y9kcdpfy8wnff2ngvqae','new > done');
CREATE TABLE IF NOT EXISTS "r_books" (n INTEGER PRIMARY KEY, id TEXT NOT NULL, scope INTEGER NOT NULL, parent TEXT, version INTEGER NOT NULL, created INTEGER NOT NULL, updated INTEGER NOT NULL, shape INTEGER NOT NULL, body TEXT NOT NULL, hidden TEXT, "f_title" TEXT) STRICT;
INSERT INTO r_books VALUES(4,'book_06gyp0m83tnb47f7hmjprm78egx4c',2,NULL,4,1794944174110,1794944174110,1,'{"id":"book_06gyp0m83tnb47f7hmjprm78egx4c","object":"book","title":"Dune","author":"Frank Herbert","created_at":"2026-11-17T19:36:14.110Z","updated_at":"2026-11-17T19:36:14.110Z"}',NULL,'Dune');
INSERT INTO r_books VALUES(5,'book_06gyp0m8463v9yp7nbv4147d7v4pa',2,NULL,6,1794944174113,1794944174119,1,'{"id":"book_06gyp0m8463v9yp7nbv4147d7v4pa","object":"book","title":"Emma","author":"Jane Austen","created_at":"2026-11-17T19:36:14.113Z","updated_at":"2026-11-17T19:36:14.119Z"}',NULL,'Emma');
CREATE TABLE IF NOT EXISTS "r_reviews" (n INTEGER PRIMARY KEY, id TEXT NOT NULL, scope INTEGER NOT NULL, parent TEXT, version INTEGER NOT NULL, created INTEGER NOT NULL, updated INTEGER NOT NULL, shape INTEGER NOT NULL, body TEXT NOT NULL, hidden TEXT, "f_book" TEXT) STRICT;
INSERT INTO r_reviews VALUES(7,'review_06gyp0m86d4zs1k2x0a4jrghxygwg',2,'book_06gyp0m83tnb47f7hmjprm78egx4c',7,1794944174131,1794944174131,1,'{"id":"review_06gyp0m86d4zs1k2x0a4jrghxygwg","object":"review","book":"book_06gyp0m83tnb47f7hmjprm78egx4c","rating":5,"created_at":"2026-11-17T19:36:14.131Z","updated_at":"2026-11-17T19:36:14.131Z"}',NULL,'book_06gyp0m83tnb47f7hmjprm78egx4c');
CREATE TABLE IF NOT EXISTS "r_jobs" (n INTEGER PRIMARY KEY, id TEXT NOT NULL, scope INTEGER NOT NULL, parent TEXT, version INTEGER NOT NULL, created INTEGER NOT NULL, updated INTEGER NOT NULL, shape INTEGER NOT NULL, body TEXT NOT NULL, hidden TEXT, "f_status" TEXT) STRICT;
INSERT INTO r_jobs VALUES(10,'job_06gyp0m87y9kcdpfy8wnff2ngvqae',2,NULL,10,1794944174143,1794944174143,1,'{"id":"job_06gyp0m87y9kcdpfy8wnff2ngvqae","object":"job","note":"waiting","status":"new","created_at":"2026-11-17T19:36:14.143Z","updated_at":"2026-11-17T19:36:14.143Z"}',NULL,'new');
CREATE TABLE IF NOT EXISTS "r_accounts" (n INTEGER PRIMARY KEY, id TEXT NOT NULL, scope INTEGER NOT NULL, parent TEXT, version INTEGER NOT NULL, created INTEGER NOT NULL, updated INTEGER NOT NULL, shape INTEGER NOT NULL, body TEXT NOT NULL, hidden TEXT) STRICT;
INSERT INTO r_accounts VALUES(1,'acct_06gyp0m7r06q2qvn1829xp7z6jq9m',1,NULL,3,1794944174016,1794944174104,1,'{"id":"acct_06gyp0m7r06q2qvn1829xp7z6jq9m","object":"account","name":"default","api_version":"2026-01-01","created_at":"2026-11-17T19:36:14.016Z","updated_at":"2026-11-17T19:36:14.104Z"}',NULL);
CREATE TABLE IF NOT EXISTS "r_keys" (n INTEGER PRIMARY KEY, id TEXT NOT NULL, scope INTEGER NOT NULL, parent TEXT, version INTEGER NOT NULL, created INTEGER NOT NULL, updated INTEGER NOT NULL, shape INTEGER NOT NULL, body TEXT NOT NULL, hidden TEXT, "f_digest" TEXT) STRICT;
INSERT INTO r_keys VALUES(2,'key_06gyp0m7ra41553k2khckda7qc6rr',2,NULL,2,1794944174018,1794944174018,1,'{"id":"key_06gyp0m7ra41553k2khckda7qc6rr","object":"key","digest":"89325b13b82248cf0aa6991f6225398be564269d7c745cc129dcada4c721151b","name":"bootstrap","kind":"secret","account":"acct_06gyp0m7r06q2qvn1829xp7z6jq9m","hint":"sk_test_end_to_end_…6789","scopes":[],"rate_limit":null,"expires_at":null,"revoked_at":null,"created_at":"2026-11-17T19:36:14.018Z","updated_at":"2026-11-17T19:36:14.018Z"}',NULL,'89325b13b82248cf0aa6991f6225398be564269d7c745cc129dcada4c721151b');
CREATE UNIQUE INDEX log_id ON log (id);
CREATE INDEX log_record ON log (record);
CREATE INDEX log_scope ON log (scope);
CREATE UNIQUE INDEX remembered_key ON remembered (scope, digest);
CREATE INDEX timers_due ON timers (due);
CREATE INDEX timers_record ON timers (record);
CREATE UNIQUE INDEX "u_books+id" ON "r_books" (id);
CREATE INDEX "i_books+created" ON "r_books" (scope, created);
CREATE INDEX "i_books+updated" ON "r_books" (scope, updated);
CREATE INDEX "i_books+moved" ON "r_books" (scope, version) WHERE version <> n;
CREATE INDEX "i_books+f_title" ON "r_books" (scope, "f_title");
CREATE UNIQUE INDEX "u_reviews+id" ON "r_reviews" (id);
CREATE INDEX "i_reviews+created" ON "r_reviews" (parent, created);
CREATE INDEX "i_reviews+updated" ON "r_reviews" (parent, updated);
CREATE INDEX "i_reviews+moved" ON "r_reviews" (scope, version) WHERE version <> n;
CREATE UNIQUE INDEX "u_jobs+id" ON "r_jobs" (id);
CREATE INDEX "i_jobs+created" ON "r_jobs" (scope, created);
CREATE INDEX "i_jobs+updated" ON "r_jobs" (scope, updated);
CREATE INDEX "i_jobs+moved" ON "r_jobs" (scope, version) WHERE version <> n;
CREATE INDEX "i_jobs+f_status" ON "r_jobs" (scope, "f_status");
CREATE UNIQUE INDEX "u_accounts+id" ON "r_accounts" (id);
CREATE INDEX "i_accounts+created" ON "r_accounts" (scope, created);
CREATE INDEX "i_accounts+updated" ON "r_accounts" (scope, updated);
CREATE INDEX "i_accounts+moved" ON "r_accounts" (scope, version) WHERE version <> n;
CREATE UNIQUE INDEX "u_keys+id" ON "r_keys" (id);
CREATE INDEX "i_keys+created" ON "r_keys" (scope, created);
CREATE INDEX "i_keys+updated" ON "r_keys" (scope, updated);
CREATE INDEX "i_keys+moved" ON "r_keys" (scope, version) WHERE version <> n;
CREATE UNIQUE INDEX "u_keys+f_digest" ON "r_keys" (scope, "f_digest") WHERE "f_digest" IS NOT NULL;
CREATE INDEX "i_keys+digest" ON "r_keys" ("f_digest");
COMMIT;
