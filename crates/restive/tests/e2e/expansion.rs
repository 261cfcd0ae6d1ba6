//! `include`/`expand` and `fields`: views of a record other than the default.

use crate::database;
use crate::harness::{Server, Start};
use serde_json::json;

const CHAIN: &str = r#"
[collections.countries.fields]
name = "string"
[collections.cities.fields]
name = "string"
country = { ref = "countries" }
[collections.people.fields]
name = "string"
city = { ref = "cities" }
secret_city = { ref = "cities", write_only = true }
[collections.pets]
parent = "people"
fields = { name = "string", born = { ref = "cities" } }
[collections.toys]
parent = "pets"
fields = { name = "string" }
"#;

/// Person, city, country, pet.
fn family(server: &Server) -> [String; 4] {
    let country = server.make("/v1/countries", json!({"name": "France"}));
    let city = server.make("/v1/cities", json!({"name": "Lyon", "country": country}));
    let person = server.make("/v1/people", json!({"name": "Ada", "city": city}));
    let pets = format!("/v1/people/{person}/pets");
    let pet = server.make(&pets, json!({"name": "Rex", "born": city}));
    server.make(&format!("{pets}/{pet}/toys"), json!({"name": "Ball"}));
    [person, city, country, pet]
}

#[test]
fn dotted_expand_paths_embed_references_and_children() {
    let server = Start::schema(CHAIN).go();
    let [person, city, country, pet] = family(&server);
    let path = format!("/v1/people/{person}");
    let plain = server.get(&path).expect(200);
    assert_eq!(plain["city"], city);
    for word in ["expand", "include", "expand%5B%5D"] {
        let shown = server.get(&format!("{path}?{word}=city.country")).expect(200);
        assert_eq!(shown["city"]["name"], "Lyon");
        assert_eq!(shown["city"]["country"]["id"], country);
        assert_eq!(shown["name"], "Ada");
    }
    let shown = server.get(&format!("{path}?expand=pets.toys,city&include=pets.born")).expect(200);
    let pets = &shown["pets"];
    assert_eq!((&pets["object"], &pets["pagination"]["has_more"]), (&json!("list"), &json!(false)));
    assert_eq!(pets["url"], format!("/v1/people/{person}/pets"));
    assert_eq!(pets["data"][0]["id"], pet);
    assert_eq!(pets["data"][0]["born"]["name"], "Lyon");
    assert_eq!(pets["data"][0]["toys"]["data"][0]["name"], "Ball");
    assert_eq!(shown["city"]["country"], country, "only what was asked for");
    let toys = pets["data"][0]["toys"]["url"].as_str().unwrap();
    assert_eq!(server.get(toys).column("name"), ["Ball"], "the url of embedded children works");
    let both = server.get(&format!("{path}/pets/{pet}?expand=person,toys")).expect(200);
    assert_eq!(both["toys"]["url"], toys, "also where the parent is expanded");
    let deep = server.get(&format!("{path}?expand=pets.born.country")).expect(200);
    assert_eq!(deep["pets"]["data"][0]["born"]["country"]["name"], "France");
    let pet_path = format!("{path}/pets/{pet}?expand=person.city");
    let up = server.get(&pet_path).expect(200);
    assert_eq!(up["person"]["city"]["name"], "Lyon", "the parent is a reference too");
}

#[test]
fn an_unknown_or_too_deep_expand_path_is_refused_with_the_known_ones() {
    let server = Start::schema(CHAIN).go();
    let [person, ..] = family(&server);
    for base in [format!("/v1/people/{person}"), "/v1/people".to_owned()] {
        for (path, hint) in [
            ("town", "city, pets"),
            ("name", "city, pets"),
            ("secret_city", "city, pets"),
            ("city.mayor", "country"),
            ("city.country.x", "it has none"),
            ("pets.born.country.x", "deeper"),
            ("", "city, pets"),
            ("city,,pets", "city, pets"),
        ] {
            let error =
                server.get(&format!("{base}?expand={path}")).error(400, "invalid_parameter");
            let message = error["message"].as_str().unwrap();
            assert!(message.contains(hint), "{path}: {message}");
        }
    }
    server.get(&format!("/v1/people/{person}?limit=3")).error(400, "unknown_parameter");
}

#[test]
fn lists_can_be_expanded_and_embedded_children_are_limited_with_has_more() {
    let server = Server::bookshop();
    let books = [server.book("one"), server.book("two")];
    for number in 0..12 {
        let book = &books[number % 2];
        server.make("/v1/orders", json!({"book": book}));
        server.make(&format!("/v1/books/{}/reviews", books[0]), json!({"rating": 1 + number % 5}));
    }
    for query in ["expand=book", "expand=data.book", "expand=book&page=1"] {
        let orders = server.get(&format!("/v1/orders?{query}")).expect(200);
        let rows = orders["data"].as_array().unwrap();
        assert_eq!(rows.len(), 12);
        assert!(rows.iter().all(|order| order["book"]["object"] == "book"), "{query}");
    }
    let shown = server.get("/v1/books?sort=title&expand=reviews").expect(200);
    let (first, second) = (&shown["data"][0]["reviews"], &shown["data"][1]["reviews"]);
    assert_eq!(first["data"].as_array().unwrap().len(), 10);
    assert_eq!(
        (&first["pagination"]["has_more"], &second["pagination"]["has_more"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(second["data"], json!([]));
    let both = server.get("/v1/orders?expand=book.reviews&limit=1").expect(200);
    assert!(both["data"][0]["book"]["reviews"]["data"].is_array());
}

#[test]
fn expanding_a_reference_to_a_deleted_record_leaves_the_id() {
    let server = Server::bookshop();
    let book = server.book("gone");
    let order = server.make("/v1/orders", json!({"book": book}));
    let (code, folder) = server.stop();
    assert_eq!(code, 0);
    // As an older release allowed it.
    database::change(folder.path(), &format!("DELETE FROM r_books WHERE id = '{book}'"));
    let server = Start::bookshop().on(&folder).go();
    let shown = server.get(&format!("/v1/orders/{order}?expand=book")).expect(200);
    assert_eq!(shown["book"], book);
}

#[test]
fn fields_selects_members_in_the_order_of_the_schema() {
    let server = Server::bookshop();
    let book = server.book("Dune");
    let order = server.make("/v1/orders", json!({"book": book}));
    let path = format!("/v1/books/{book}");
    let text = server.get(&format!("{path}?fields=title,id")).text;
    assert_eq!(text, format!("{{\"id\":\"{book}\",\"title\":\"Dune\"}}"));
    let list = server.get("/v1/books?fields=title").expect(200);
    assert_eq!(list["data"], json!([{"title": "Dune"}]));
    let shown = server.get(&format!("/v1/orders/{order}?fields=quantity&expand=book")).expect(200);
    assert_eq!((&shown["quantity"], &shown["book"]["title"]), (&json!(1), &json!("Dune")));
    assert_eq!(shown.as_object().unwrap().len(), 2);
    let error = server.get(&format!("{path}?fields=titel")).error(400, "invalid_parameter");
    assert!(error["message"].as_str().unwrap().contains("title"));
    let tags = [&path, &format!("{path}?fields=title"), &format!("{path}?fields=id")]
        .map(|path| server.get(path).header("etag").unwrap().to_owned());
    assert!(tags[0] != tags[1] && tags[1] != tags[2], "each view has its own tag: {tags:?}");
}

#[test]
fn expanding_needs_read_access_to_the_embedded_collection() {
    let server = Server::bookshop();
    let book = server.book("Dune");
    let order = server.make("/v1/orders", json!({"book": book}));
    let make = |scopes: &[&str]| {
        let mut arguments = vec!["keys", "create"];
        scopes.iter().for_each(|scope| arguments.extend(["--scope", scope]));
        let (text, error, code) = server.tool(&arguments);
        assert_eq!(code, 0, "{error}");
        text.split_whitespace().nth(1).unwrap().to_owned()
    };
    let (narrow, wide) = (make(&["orders:read"]), make(&["orders:read", "books:read"]));
    for path in [format!("/v1/orders/{order}?expand=book"), "/v1/orders?expand=book".to_owned()] {
        let error = server.ask("GET", &path).key(&narrow).send().error(403, "permission_denied");
        assert!(error["message"].as_str().unwrap().contains("books:read"), "{error}");
        server.ask("GET", &path).key(&wide).send().expect(200);
    }
}
