//! The client that `restive generate rust` writes: the stored files are compiled here, and the one
//! of the bookshop is used against the real server.

#[rustfmt::skip]
#[path = "generated/bookshop.rs.golden"]
mod bookshop;
#[rustfmt::skip]
#[path = "generated/hostile.rs.golden"]
mod hostile;

use self::bookshop::{
    BookCreate, BookQuery, BookSort, BookUpdate, Bookshop, BookshopEvent, Event, Filter, InEvent,
    MessageCreate, OrderCancelParams, OrderCreate, OrderQuery, OrderStatus, ReviewCreate,
};
use crate::harness::Server;
use restive_kit::client::Client;
use serde_json::json;

fn shop(server: &Server) -> Bookshop {
    let client = Client::builder(&server.url("")).key(&server.key).version(Bookshop::VERSION);
    Bookshop::new(client.build().unwrap())
}

async fn titles(shop: &Bookshop, query: BookQuery) -> Vec<String> {
    let mut found = shop.books().list(&query);
    let mut titles = Vec::new();
    while let Some(book) = found.next().await.unwrap() {
        titles.push(book.title);
    }
    titles
}

#[tokio::test]
async fn a_generated_client_lists_and_changes_records_with_typed_fields() {
    let server = Server::bookshop();
    let shop = shop(&server);
    let author = "Tolkien, J. R. R. \"the author\"";
    let mut ids = Vec::new();
    for title in ["A", "B", "C"] {
        let (title, author) = (title.to_owned(), author.to_owned());
        let body = BookCreate { title, author, ..BookCreate::default() };
        ids.push(shop.books().create(&body).await.unwrap().id);
    }
    let by_author = BookQuery { author: Some(author.into()), ..BookQuery::default() };
    let sort = vec![BookSort::TitleDesc];
    let query = BookQuery { sort, limit: Some(2), ..by_author.clone() };
    assert_eq!(titles(&shop, query).await, ["C", "B", "A"]);
    let priced = BookUpdate { price: Some(Some(12.5)), ..BookUpdate::default() };
    assert_eq!(shop.books().update(&ids[0], &priced).await.unwrap().price, Some(12.5));
    let query = BookQuery { min_price: Some(12.0), max_price: Some(13.0), ..by_author.clone() };
    assert_eq!(titles(&shop, query).await, ["A"]);
    let query = BookQuery { price: Some(Filter::null()), ..by_author.clone() };
    assert_eq!(titles(&shop, query).await, ["C", "B"]);
    let author = Filter::any_of("nobody".to_owned(), [author.to_owned()]);
    assert_eq!(titles(&shop, BookQuery { author: Some(author), ..by_author }).await.len(), 3);
    let cleared = BookUpdate { price: Some(None), ..BookUpdate::default() };
    assert_eq!(shop.books().update(&ids[0], &cleared).await.unwrap().price, None);
    let review = ReviewCreate { rating: 5, ..ReviewCreate::default() };
    assert_eq!(shop.books().reviews(&ids[0]).create(&review).await.unwrap().book, ids[0]);
    shop.books().delete(&ids[1]).await.unwrap();
    let gone = shop.books().get(&ids[1]).await.unwrap_err();
    assert_eq!(gone.api().map(|error| error.status), Some(404));
    assert!(shop.books().get("").await.is_err() && shop.books().get("..").await.is_err());
}

#[tokio::test]
async fn a_generated_client_runs_actions_and_polls_feeds() {
    let server = Server::bookshop();
    let shop = shop(&server);
    let book = server.book("Dune");
    let body = OrderCreate { book: book.clone(), quantity: Some(2) };
    let order = shop.orders().create(&body).await.unwrap();
    assert_eq!(order.status, OrderStatus::Created);
    let reason = OrderCancelParams { reason: Some("late".to_owned()) };
    let cancelled = shop.orders().cancel(&order.id, &reason).await.unwrap();
    assert_eq!(cancelled.status, OrderStatus::Cancelled);
    assert_eq!(cancelled.cancel_reason.as_deref(), Some("late"));
    let refused = shop.orders().pay(&order.id).await.unwrap_err();
    assert_eq!(refused.api().map(|error| error.status), Some(409));
    let status = Some(Filter::any_of(OrderStatus::Created, [OrderStatus::Paid]));
    let mut open = shop.orders().list(&OrderQuery { status, ..OrderQuery::default() });
    assert!(open.next().await.unwrap().is_none());
    let message = MessageCreate { from: Some("ann".to_owned()), text: "hello".to_owned() };
    let sent = shop.messages().create(&message).await.unwrap();
    let polled = shop.messages().poll("0", false).await.unwrap();
    assert_eq!(polled, [sent]);
}

#[test]
fn generated_code_reads_events_of_every_type_also_of_erased_records_and_unknown_types() {
    let server = Server::bookshop();
    let id = server.book("Dune");
    server.patch(&format!("/v1/books/{id}"), json!({"title": "Dune Messiah"})).expect(200);
    let read = |kind: &str| {
        let page = server.get(&format!("/v1/events?type={kind}")).expect(200);
        Event::read(page["data"][0].to_string().as_bytes()).unwrap().payload
    };
    let BookshopEvent::BookUpdated(change) = read("book.updated") else { panic!("another type") };
    assert_eq!(change.previous_attributes.unwrap()["title"], "Dune");
    let InEvent::Record(book) = change.object else { panic!("no record") };
    assert_eq!((book.id.as_str(), book.title.as_str()), (id.as_str(), "Dune Messiah"));
    server.post("/v1/erasures", json!({"resource": id})).expect(201);
    let BookshopEvent::BookCreated(data) = read("book.created") else { panic!("another type") };
    assert!(matches!(data.object, InEvent::Reference { erased: true, .. }), "{data:?}");
    let BookshopEvent::Other(kind, _) = read("erasure.created") else { panic!("a known type") };
    assert_eq!(kind, "erasure.created");
}
