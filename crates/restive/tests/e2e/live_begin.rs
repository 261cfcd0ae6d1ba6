//! The position at which a connection begins. A test cannot hit the moment between the response and
//! its arrival from outside. Here the service runs inside the test, behind a gate that holds its
//! responses until something is committed.

use crate::harness::{KEY, PATIENCE};
use crate::live_client::{Events, Opened, Socket, bearer};
use api::keys::{Keyring, NewKey};
use api::{Actions, Api, Outside, Parts, Settings};
use live::{Hub, Limits};
use model::Timestamp;
use model::id::Entropy;
use model::parse;
use model::schema::BOOKSHOP;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use store::Store;
use store::cluster::Solo;
use store::sqlite::SqliteStore;
use tempfile::TempDir;
use tokio::runtime::Builder;
use tokio::sync::Semaphore;
use wire::{Answer, Exchange, Fault, Listener, Response, Service, Shutdown, Trigger};

struct System(Instant);

impl Outside for System {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Timestamp(since.as_millis().try_into().unwrap())
    }

    fn uptime(&self) -> Duration {
        self.0.elapsed()
    }

    fn entropy(&self) -> Entropy {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).unwrap();
        Entropy(bytes)
    }
}

/// Reports each response of a channel and holds it until it may be sent.
struct Gate {
    api: Api,
    made: Mutex<Sender<()>>,
    may_go: Semaphore,
}

impl Service for Gate {
    fn call(&self, exchange: Exchange) -> Answer<'_> {
        let is_channel = exchange.method == "GET";
        let answer = self.api.call(exchange);
        Box::pin(async move {
            let response = answer.await;
            if is_channel {
                self.made.lock().unwrap().send(()).unwrap();
                self.may_go.acquire().await.unwrap().forget();
            }
            response
        })
    }

    fn refuse(&self, fault: Fault) -> Response {
        self.api.refuse(fault)
    }
}

/// The service and everything that keeps it running.
struct Gated {
    address: SocketAddr,
    gate: Arc<Gate>,
    made: Receiver<()>,
    _trigger: Trigger,
    _folder: TempDir,
}

impl Gated {
    fn start() -> Gated {
        let folder = TempDir::new().unwrap();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let schema = Arc::new(parse::parse(BOOKSHOP).unwrap());
        let file = folder.path().join("data.db");
        let store: Arc<dyn Store> = SqliteStore::open(&file, schema.clone()).unwrap();
        let outside: Arc<dyn Outside> = Arc::new(System(Instant::now()));
        let hub = runtime.block_on(async {
            let keyring = Keyring { schema: &schema, store: &*store, outside: &*outside };
            let account = keyring.create_account("default").await.unwrap();
            let key = NewKey { secret: Some(KEY.to_owned()), ..NewKey::default() };
            keyring.create_key(&account, false, key).await.unwrap();
            Hub::new(schema.clone(), store.clone(), Solo::new(), Limits::default(), 1)
                .await
                .unwrap()
        });
        let hub = Arc::new(hub);
        let follows = hub.clone().run();
        std::thread::spawn(move || runtime.block_on(follows));
        let settings = Settings { rate_limit: None, access_log: false, edge_secret: None };
        let figures = Arc::new(|_: &mut String, _: bool| {});
        let actions = Arc::new(Actions::start(store.watchdog()).unwrap());
        let (delivery_figures, site) = (Arc::new(|_| api::DeliveryFigures::default()), None);
        let parts = Parts {
            schema,
            store,
            outside,
            settings,
            figures,
            delivery_figures,
            hub,
            actions,
            cluster: Solo::new(),
            site,
        };
        let api = Api::new(parts).unwrap();
        let (sender, made) = channel();
        let may_go = Semaphore::new(0);
        let gate = Arc::new(Gate { api, made: Mutex::new(sender), may_go });
        let listener = Listener::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = listener.local_addr();
        let (trigger, shutdown) = Shutdown::channel();
        listener.run(gate.clone(), wire::Limits::default(), shutdown).unwrap();
        Gated { address, gate, made, _trigger: trigger, _folder: folder }
    }

    /// Opens a connection, and commits a message between the response and its arrival.
    fn committing<T: Send>(&self, open: impl FnOnce() -> T + Send) -> (T, Value) {
        std::thread::scope(|scope| {
            let opening = scope.spawn(open);
            self.made.recv_timeout(PATIENCE).unwrap();
            let message = ureq::post(format!("http://{}/v1/messages", self.address))
                .header("authorization", format!("Bearer {KEY}"))
                .header("content-type", "application/json");
            let text = json!({ "text": "in between" }).to_string();
            let made = message.send(text).unwrap().body_mut().read_to_string().unwrap();
            self.gate.may_go.add_permits(1);
            (opening.join().unwrap(), serde_json::from_str(&made).unwrap())
        })
    }
}

/// A client that writes after it has the response must receive its own event, however late the
/// connection is handed over: the stream begins at the position of the response.
#[test]
fn a_stream_delivers_events_committed_while_it_opens() {
    let gated = Gated::start();
    let address = gated.address;
    let (mut socket, made) =
        gated.committing(|| Socket::try_open(address, KEY, "/ws", PATIENCE).unwrap());
    assert_eq!(socket.message()["type"], "welcome");
    assert_eq!(socket.message()["data"], made);
    let (mut stream, made) =
        gated.committing(|| Events::try_open(address, KEY, "/api/events", None, PATIENCE).unwrap());
    assert_eq!(stream.event().json(), made);
    let target = format!("/api/messages?since={}&wait=true", made["id"]);
    let began = Instant::now();
    let (polled, made) =
        gated.committing(|| Opened::try_get(address, &target, &[bearer(KEY)], PATIENCE).unwrap());
    let polled: Value = serde_json::from_str(&polled.try_body().unwrap()).unwrap();
    assert_eq!(polled, json!([made]));
    assert!(
        began.elapsed() < Limits::default().poll_timeout / 2,
        "it was held although it had come"
    );
}
