//! State machines: actions, rules that refuse them, and timed transitions.

use crate::harness::{Server, Start, eventually};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn order(server: &Server) -> String {
    let book = server.book("Dune");
    format!("/v1/orders/{}", server.make("/v1/orders", json!({"book": book})))
}

fn intent(server: &Server, method: Value) -> String {
    let body = json!({"amount": 500, "currency": "eur", "payment_method": method});
    format!("/v1/payment-intents/{}", server.make("/v1/payment-intents", body))
}

fn status(server: &Server, path: &str) -> String {
    server.get(path).expect(200)["status"].as_str().unwrap_or("?").to_owned()
}

#[test]
fn an_order_changes_state_only_along_declared_transitions() {
    let server = Server::bookshop();
    let path = order(&server);
    let act = |name: &str| server.post(&format!("{path}/{name}"), json!({}));
    let check = |name: &str, state: &str, allowed: &[&str]| {
        let before = server.get(&path);
        let error = act(name).error(409, "invalid_state");
        assert_eq!(error["current_state"], state);
        assert_eq!(error["allowed"], json!(allowed));
        assert_eq!(error["param"], "status");
        assert_eq!(server.get(&path).text, before.text, "nothing was changed");
    };
    check("ship", "created", &["pay", "cancel"]);
    let paid = act("pay");
    assert_eq!(paid.header("content-location"), Some(path.as_str()));
    assert_eq!(paid.expect(200)["status"], "paid");
    check("pay", "paid", &["ship", "cancel"]);
    assert_eq!(act("ship").expect(200)["status"], "shipped");
    for name in ["pay", "ship", "cancel"] {
        check(name, "shipped", &[]);
    }
    server.post(&format!("{path}/refund"), json!({})).error(404, "route_not_found");
    server.post("/v1/orders/order_none/pay", json!({})).error(404, "not_found");
    server.get(&format!("{path}/pay")).error(405, "method_not_allowed");
}

#[test]
fn parameters_of_an_action_are_validated_and_applied() {
    let server = Server::bookshop();
    let path = order(&server);
    let cancel = format!("{path}/cancel");
    for (body, field, code) in [
        (json!({"reason": 5}), "reason", "wrong_type"),
        (json!({"reason": "x".repeat(501)}), "reason", "too_long"),
        (json!({"why": "x"}), "why", "unknown_field"),
    ] {
        let error = server.post(&cancel, body).error(422, "validation_failed");
        assert_eq!(
            (&error["errors"][0]["field"], &error["errors"][0]["code"]),
            (&json!(field), &json!(code))
        );
    }
    server.ask("POST", &cancel).json(&json!([1])).send().error(400, "body_not_object");
    server.post(&format!("{cancel}?x=1"), json!({})).error(400, "unknown_parameter");
    assert_eq!(status(&server, &path), "created");
    let done = server.post(&cancel, json!({"reason": "too late"})).expect(200);
    assert_eq!(
        (&done["status"], &done["cancel_reason"]),
        (&json!("cancelled"), &json!("too late"))
    );
    let other = order(&server);
    let done = server.ask("POST", &format!("{other}/cancel")).send().expect(200);
    assert_eq!((&done["status"], &done["cancel_reason"]), (&json!("cancelled"), &json!(null)));
}

#[test]
fn a_declined_card_is_a_402_with_the_card_error() {
    let server = Server::bookshop();
    let path = intent(&server, json!("pm_card_declined"));
    let answer = server.post(&format!("{path}/confirm"), json!({}));
    let error = answer.error(402, "card_declined");
    for (name, value) in [
        ("type", "card_error"),
        ("code", "card_declined"),
        ("decline_code", "generic_decline"),
        ("message", "Your card was declined."),
        ("param", "payment_method"),
    ] {
        assert_eq!(error[name], value, "{name}");
    }
    let record = server.get(&path).expect(200);
    assert_eq!(record["status"], "requires_payment_method");
    assert_eq!(record["last_payment_error"]["decline_code"], "generic_decline");
    let confirmed =
        server.post(&format!("{path}/confirm"), json!({"payment_method": "pm_card_visa"}));
    let confirmed = confirmed.expect(200);
    assert_eq!(confirmed["status"], "processing");
    assert_eq!(confirmed["last_payment_error"], json!(null), "cleared by the next try");
    assert_eq!(confirmed["payment_method"], "pm_card_visa");
}

#[test]
fn a_timed_transition_takes_a_payment_from_processing_to_succeeded() {
    let server = Server::bookshop();
    let path = intent(&server, json!(null));
    let error =
        server.post(&format!("{path}/confirm"), json!({})).error(400, "payment_method_missing");
    assert_eq!(
        (&error["type"], &error["param"]),
        (&json!("invalid_request_error"), &json!("payment_method"))
    );
    let began = Instant::now();
    let answer = server.post(&format!("{path}/confirm"), json!({"payment_method": "pm_card_visa"}));
    assert_eq!(answer.expect(200)["status"], "processing");
    let tag = server.get(&path).header("etag").unwrap().to_owned();
    eventually("the payment succeeds", || status(&server, &path) == "succeeded");
    assert!(began.elapsed() >= Duration::from_millis(1000), "not before its time");
    assert_ne!(server.get(&path).header("etag"), Some(tag.as_str()));
    server.post(&format!("{path}/cancel"), json!({})).error(409, "invalid_state");
    let found = server.get("/v1/payment-intents?status=succeeded").column("status");
    assert_eq!(found, ["succeeded"], "the state can be filtered by");
}

#[test]
fn a_cancelled_payment_does_not_succeed_later() {
    let server = Server::bookshop();
    let path = intent(&server, json!("pm_card_visa"));
    let other = intent(&server, json!("pm_card_visa"));
    server.post(&format!("{path}/confirm"), json!({})).expect(200);
    server
        .post(&format!("{path}/cancel"), json!({"reason": "nonsense"}))
        .error(422, "validation_failed");
    let done = server.post(&format!("{path}/cancel"), json!({"reason": "duplicate"})).expect(200);
    assert_eq!(
        (&done["status"], &done["cancellation_reason"]),
        (&json!("canceled"), &json!("duplicate"))
    );
    server.post(&format!("{other}/confirm"), json!({})).expect(200);
    eventually("a later one succeeds", || status(&server, &other) == "succeeded");
    assert_eq!(status(&server, &path), "canceled");
}

#[test]
fn a_timed_transition_survives_a_kill() {
    let server = Server::bookshop();
    let path = intent(&server, json!("pm_card_visa"));
    server.post(&format!("{path}/confirm"), json!({})).expect(200);
    let folder = server.kill();
    let server = Start::bookshop().on(&folder).go();
    eventually("the payment succeeds", || status(&server, &path) == "succeeded");
}

#[test]
fn a_change_of_another_field_does_not_delay_a_timer() {
    let server = Server::bookshop();
    let path = intent(&server, json!("pm_card_visa"));
    server.post(&format!("{path}/confirm"), json!({})).expect(200);
    let began = Instant::now();
    let mut amount = 501;
    eventually("the payment succeeds although it is changed all the time", || {
        server.patch(&path, json!({"amount": amount})).expect(200);
        amount += 1;
        status(&server, &path) == "succeeded"
    });
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[test]
fn many_timers_fire_together() {
    let schema = r#"
        [collections.jobs]
        states = { names = ["new", "done"] }
        fields = { note = "string" }
        [[collections.jobs.timed]]
        from = "new"
        to = "done"
        after = "50ms"
        set = { note = "=(has(record.note) ? record.note : '') + '!'" }
    "#;
    let server = Start::schema(schema).go();
    for number in 0..40 {
        server.make("/v1/jobs", json!({"note": number.to_string()}));
    }
    let done = || server.get("/v1/jobs?status=done&limit=100").column("note");
    eventually("all are done", || done().len() == 40);
    assert!(done().iter().all(|note| note.as_str().unwrap().ends_with('!')), "each once");
    assert!(!done().iter().any(|note| note.as_str().unwrap().ends_with("!!")));
}

#[test]
fn the_first_rule_that_fails_refuses_an_action() {
    let schema = r#"
        [collections.accounts-payable]
        object = "bill"
        fields = { amount = { type = "integer", required = true }, note = "string" }
        states = { names = ["open", "blocked", "paid"] }
        [collections.accounts-payable.actions.pay]
        from = "open"
        to = "paid"
        params.limit = { type = "integer", default = 100 }
        params.by = { type = "string", required = true }
        set = { note = "='paid by ' + request.by" }
        [[collections.accounts-payable.actions.pay.rules]]
        when = "has(request.limit) && record.amount > request.limit * 10"
        status = 403
        code = "far_too_much"
        message = "Far too much."
        to = "blocked"
        event = "bill.blocked"
        [[collections.accounts-payable.actions.pay.rules]]
        when = "has(request.limit) && record.amount > request.limit"
        message = "Too much."
    "#;
    let server = Start::schema(schema).go();
    let bill = |amount: i64| {
        format!(
            "/v1/accounts-payable/{}",
            server.make("/v1/accounts-payable", json!({"amount": amount}))
        )
    };
    let pay = |path: &str, body: Value| server.post(&format!("{path}/pay"), body);
    let (small, large, huge) = (bill(5), bill(500), bill(5000));
    let error = pay(&small, json!({})).error(422, "validation_failed");
    assert_eq!(error["param"], "by");
    assert_eq!(pay(&small, json!({"by": "Ada"})).expect(200)["note"], "paid by Ada");
    let error = pay(&large, json!({"by": "Ada"})).error(422, "guard_failed");
    assert_eq!(error["message"], "Too much.");
    assert_eq!(status(&server, &large), "open", "a plain refusal changes nothing");
    pay(&large, json!({"by": "Ada", "limit": 1000})).expect(200);
    pay(&huge, json!({"by": "Ada"})).error(403, "far_too_much");
    assert_eq!(status(&server, &huge), "blocked", "a refusal may leave a trace");
    pay(&huge, json!({"by": "Ada"})).error(409, "invalid_state");
}

#[test]
fn expressions_calculate_with_the_numbers_of_the_record() {
    let schema = r#"
        [collections.carts.fields]
        count = { type = "integer", required = true }
        price = { type = "number", required = true }
        total = { type = "number", read_only = true }
        label = { type = "string", read_only = true }
        [collections.carts.actions.sum]
        params.extra = { type = "integer", required = true }
        params.rate = { type = "number", required = true }
        [collections.carts.actions.sum.set]
        total = "=request.rate / 2.0 + 1.5 * record.price * double(record.count + request.extra*10)"
        label = "=record.price > 10 ? 'dear' : (record.price == 2 ? 'two' : 'other')"
        [[collections.carts.actions.sum.rules]]
        when = "record.count - 5 > 0 || record.count % 2 == 1"
        message = "Too many."
    "#;
    let server = Start::schema(schema).go();
    let sum = |body: Value| {
        let id = server.make("/v1/carts", body);
        server.post(&format!("/v1/carts/{id}/sum"), json!({"extra": 1, "rate": 2}))
    };
    let done = sum(json!({"count": 2, "price": 2})).expect(200);
    assert_eq!((&done["total"], &done["label"]), (&json!(37), &json!("two")));
    let done = sum(json!({"count": -2, "price": 10.5})).expect(200);
    assert_eq!((&done["total"], &done["label"]), (&json!(127), &json!("dear")));
    sum(json!({"count": 6, "price": 2})).error(422, "guard_failed");
    sum(json!({"count": 3, "price": 2})).error(422, "guard_failed");
}

/// A transition has one event type, whether a request or a timer causes it.
#[test]
fn a_transition_has_one_event_type_whether_an_action_or_a_timer_makes_it() {
    let server = Start::schema(
        r#"
        [collections.tickets]
        states = { names = ["open", "closed", "created"] }
        [collections.tickets.actions.close]
        from = "open"
        to = "closed"
        [collections.tickets.actions.re-create]
        to = "created"
        [collections.tickets.actions.touch]
        [[collections.tickets.timed]]
        from = "open"
        to = "closed"
        after = "300ms"
        "#,
    )
    .go();
    let act = |id: &str, action: &str| {
        server.post(&format!("/v1/tickets/{id}/{action}"), json!({})).expect(200);
    };
    let kinds = |id: &str| {
        let events = server.get(&format!("/v1/events?resource={id}&sort=created"));
        events
            .column("type")
            .iter()
            .map(|kind| kind.as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let [by_action, by_timer] = [(); 2].map(|()| server.make("/v1/tickets", json!({})));
    act(&by_action, "close");
    eventually("the timer fires", || kinds(&by_timer).len() == 2);
    assert_eq!(kinds(&by_timer), ["ticket.created", "ticket.closed"]);
    assert_eq!(kinds(&by_action), kinds(&by_timer));
    // Without a state, and for one that is called like another change, the action names it.
    act(&by_action, "touch");
    act(&by_action, "re-create");
    assert_eq!(kinds(&by_action)[2..], ["ticket.touch", "ticket.re_create"]);
}
