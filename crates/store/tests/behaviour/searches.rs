//! Full-text search: reads its own writes, and takes any words for words.

use crate::support::*;
use model::query::Page;
use serde_json::json;

pub async fn search_reads_its_own_writes(bed: Bed) {
    for n in 0..30 {
        let made = bed.put(book(&format!("Título {n}"), json!(n))).await;
        let found = bed.list(&search(&["titulo", &n.to_string()])).await.records;
        assert_eq!(found, [made]);
    }
    let made = bed.put(book("Dune", json!(1))).await;
    let renamed = bed.put(merge(BOOKS, &made.id, json!({"title": "Emma"}))).await;
    assert!(bed.list(&search(&["dune"])).await.records.is_empty());
    assert_eq!(bed.list(&search(&["emma"])).await.records, [renamed]);
    bed.commit(delete(BOOKS, &made.id)).await.unwrap().unwrap();
    assert!(bed.list(&search(&["emma"])).await.records.is_empty());
    let message = bed.put(create(MESSAGES, json!({"text": "over here"}))).await;
    let found = bed.store.list(HERE, MESSAGES, &search(&["HERE"])).await.unwrap();
    assert_eq!(found.records, [message]);
}

pub async fn case_does_not_count_in_a_search(bed: Bed) {
    let spellings = [["ΑΣ", "ας", "ασ"], ["Sſ", "ſs", "ss"], ["ΜM", "µm", "μm"]];
    for same in spellings {
        for word in same {
            bed.put(book(word, json!(1))).await;
        }
        for word in same {
            let found = bed.list(&search(&[word])).await.records;
            assert_eq!(found.len(), 3, "{word} finds {:?}", titles(&found));
        }
    }
}

pub async fn hostile_words_are_only_words(bed: Bed) {
    let made = bed.put(book("Dune OR \"Emma\" (NEAR)", json!(1))).await;
    let hostile = [
        "\"",
        "\"\"",
        "*",
        "du*",
        "(",
        ")",
        "NOT",
        "OR",
        "AND",
        "NEAR(",
        "scope_:s22",
        "s22",
        "^dune",
        "f_title:dune",
        "{",
        "}",
        "-",
        "+",
        ";",
        "' OR 1=1 --",
        "\0",
        "a\0b",
        "dune\0",
        "\u{feff}",
        "日本",
        "%",
        "_",
        "\\",
        "dune\"dune",
    ];
    for word in hostile {
        // None may fail; what they find is what contains them as words.
        bed.list(&search(&[word])).await;
        bed.list(&search(&["dune", word])).await;
    }
    for words in [&["or"] as &[&str], &["near"], &["\"emma\""], &["dune", "-"], &["(dune)"]] {
        assert_eq!(bed.list(&search(words)).await.records.len(), 1, "{words:?}");
    }
    for words in [&["s20"] as &[&str], &["scope_"], &["-"], &["emm"], &["somebody", "nobody"]] {
        assert!(bed.list(&search(words)).await.records.is_empty(), "{words:?}");
    }
    let many: Vec<&str> = vec!["dune"; 500];
    assert_eq!(bed.list(&search(&many)).await.records, [made]);
}

pub async fn search_respects_scope_filters_and_pages(bed: Bed) {
    for n in 0..25 {
        bed.put(book(&format!("Tale {n}"), json!(n % 5))).await;
        let mut foreign = book(&format!("Tale {n}"), json!(n));
        foreign.scope = THERE;
        bed.put(foreign).await;
    }
    let mut tales = search(&["tale"]);
    tales.limit = 4;
    let walked = bed.walk(BOOKS, &tales).await;
    assert_eq!(walked.len(), 25);
    assert!(walked.windows(2).all(|pair| pair[0].number > pair[1].number), "newest first");
    tales.filters = vec![any_of("price", vec![model::record::Scalar::Number(3.0)])];
    assert_eq!(bed.walk(BOOKS, &tales).await.len(), 5);
    tales.page = Page::Offset(2);
    let page = bed.list(&tales).await;
    assert_eq!((page.total, page.records.len(), page.has_more), (Some(5), 1, false));
}

pub async fn search_sorts_by_rank_and_fields(bed: Bed) {
    bed.put(book("A very long title in which sand stands once", json!(3))).await;
    let best = bed.put(book("Sand sand", json!(1))).await;
    bed.put(book("Sand of the sea", json!(2))).await;
    let mut ranked = search(&["sand"]);
    ranked.sort = query("-rank", 10).sort;
    ranked.page = Page::Offset(1);
    let page = bed.list(&ranked).await;
    assert_eq!((page.total, &page.records[0]), (Some(3), &best));
    let mut priced = query("price", 2);
    priced.words = vec!["sand".into()];
    let prices: Vec<_> =
        bed.walk(BOOKS, &priced).await.iter().map(|book| value(book, "price")).collect();
    assert_eq!(prices, [json!(1), json!(2), json!(3)]);
}
