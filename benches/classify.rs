//! A whole verdict (signals, rules, hint), against what else could look for the same phrases.

#![allow(clippy::disallowed_methods, reason = "a bench has a clock")]
#![allow(missing_docs, reason = "a bench has no outside")]

mod figures;

use std::hint::black_box;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use figures::Target::{AtLeast, AtMost, None as Compare};
use figures::{Bench, Table, in_turn, measuring};
use regex::bytes::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};
use retry_machine::{Classifier, ErrorClass, ErrorFacts, UnixMillis, Verdict};

const OVERLOADED: &str = r#"529 {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_011CSHoEeqs5C35K2UUqR7Fy"}"#;
const FATAL: &str = r#"400 {"type":"error","error":{"type":"invalid_request_error","message":"messages.7: `tool_use` ids were found without `tool_result` blocks right after: toolu_01Hq4V"},"request_id":"req_011CSHoEeqs5C35K2UU"}"#;
const _: () = assert!(OVERLOADED.len() == 123 && FATAL.len() == 205);

fn main() {
    let mut bench = Bench::new(400);
    let mut table = Table::new("classify");
    let classifier = Classifier::built_in();
    against_others(&classifier, &mut bench, &mut table);
    building(&mut bench, &mut table);
    if measuring() {
        sizes(&classifier, &mut table);
        hostile(&classifier, &mut table);
    }
    table.print();
}

fn verdict(classifier: &Classifier, text: &str) -> Verdict {
    classifier.classify(black_box(text), &ErrorFacts::new(), UnixMillis(0))
}

/// The page of a gateway whose server is gone, as long as its style and its list of regions make it.
fn page(len: usize) -> String {
    let mut page = String::from(
        "502 <!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<title>harbor.example | 502: Bad gateway</title>\n\
         <meta charset=\"UTF-8\" />\n<style>body{margin:0;padding:0}</style>\n</head>\n<body>\n\
         <h1>Bad gateway <span>Error code 502</span></h1>\n<ul>\n",
    );
    let end = "</ul>\n<p>The web server reported a bad gateway error. Please try again in a few minutes.</p>\n</body>\n</html>\n";
    let mut item = 0;
    while page.len() + end.len() < len {
        page += &format!(
            "<li class=\"region r{item}\"><a href=\"/status/{item}\">Region {item}</a> answers within {} ms</li>\n",
            20 + item % 90
        );
        item += 1;
    }
    page.truncate(len - end.len());
    page + end
}

fn against_others(classifier: &Classifier, bench: &mut Bench, table: &mut Table) {
    let words = classifier.literals();
    let automaton = |kind| {
        AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .kind(Some(kind))
            .build(words)
            .expect("words make an automaton")
    };
    let nfa = automaton(AhoCorasickKind::ContiguousNFA);
    let dfa = automaton(AhoCorasickKind::DFA);
    // Every literal that stands in the text, also inside another, as the rules need to know.
    let pass = |automaton: &AhoCorasick, text: &str| {
        let found = automaton.find_overlapping_iter(black_box(text));
        found.fold(0, |sum, found| sum ^ found.pattern().as_usize())
    };
    let set = regex_set();
    let rules: Vec<Regex> = Classifier::patterns()
        .filter(|patterns| !patterns.is_empty())
        .map(|patterns| {
            let any: Vec<_> = patterns.iter().map(|pattern| regex_of(pattern)).collect();
            RegexBuilder::new(&any.join("|"))
                .case_insensitive(true)
                .unicode(false)
                .build()
                .expect("a rule makes a regex")
        })
        .collect();
    println!(
        "{} words of the rules in the automata, {} phrases in the set, {} rules one by one",
        words.len(),
        set.len(),
        rules.len()
    );

    let gateway = page(104_000);
    let cases = [
        ("overloaded, 123 B", OVERLOADED, ErrorClass::Overloaded),
        ("fatal, 205 B", FATAL, ErrorClass::InvalidRequest),
        ("HTML page, 104 kB", &gateway, ErrorClass::ServerError),
    ];
    for (name, text, class) in cases {
        assert_eq!(verdict(classifier, text).class, class, "{name}");
        let mut time = |what: &str, routine: &mut dyn FnMut() -> usize| {
            bench.time(format!("{name}/{what}"), routine)
        };
        let ours = time("verdict", &mut || verdict(classifier, text).class as usize);
        let by_nfa = time("aho-corasick nfa", &mut || pass(&nfa, text));
        let by_dfa = time("aho-corasick dfa", &mut || pass(&dfa, text));
        let by_set = time("RegexSet", &mut || {
            set.matches(black_box(text).as_bytes()).into_iter().sum()
        });
        let by_rule = time("rules one by one", &mut || {
            let text = black_box(text).as_bytes();
            rules
                .iter()
                .position(|rule| rule.is_match(text))
                .unwrap_or(0)
        });
        let by_crate = time("llm-error-class", &mut || {
            llm_error_class::classify(0, black_box(text)) as usize
        });
        let sum = time("sum of the bytes", &mut || {
            black_box(text).bytes().map(usize::from).sum()
        });
        table.figure(
            format!("verdict: {name}"),
            ours.map(|ns| ns / 1000.0),
            " µs",
            Compare,
        );
        let mut ratio = |what, that, target| {
            table.ratio(format!("  / {what}"), ours, that, target);
        };
        ratio(
            "one Aho-Corasick pass (contiguous NFA)",
            by_nfa,
            AtMost(3.0),
        );
        ratio("one Aho-Corasick pass (DFA)", by_dfa, AtMost(3.0));
        ratio("RegexSet", by_set, Compare);
        ratio("llm-error-class", by_crate, Compare);
        ratio("summing the bytes", sum, Compare);
        table.ratio("  rules one by one / verdict", by_rule, ours, AtLeast(3.0));
    }
}

fn building(bench: &mut Bench, table: &mut Table) {
    let build = bench.time("build/classifier", Classifier::built_in);
    let set = bench.time("build/RegexSet", regex_set);
    table.figure(
        "building the classifier",
        build.map(|ns| ns / 1e6),
        " ms",
        AtMost(5.0),
    );
    table.ratio("  / building the RegexSet", build, set, Compare);
}

fn sizes(classifier: &Classifier, table: &mut Table) {
    let pages = [4_000, 100_000, 10_000_000].map(page);
    let [small, large, huge] = in_turn(&pages, |page| verdict(classifier, page)).map(Some);
    table.ratio("HTML page: 100 kB / 4 kB", large, small, AtMost(4.0));
    // The same bytes are read of both: the tenth is for the clock.
    table.ratio("HTML page: 10 MB / 100 kB", huge, large, AtMost(1.1));
}

/// Linear in what is read, which is all of a text up to 12 kB; and never more than that.
fn hostile(classifier: &Classifier, table: &mut Table) {
    let controls: String = (0..32)
        .chain([127])
        .map(|byte| char::from(byte as u8))
        .collect();
    let units = [
        ("digits", "7"),
        ("JSON, deep", "{\"error\":["),
        ("JSON in strings", "\\\"{\\\\\\\""),
        ("quotes", "'a \"b `c "),
        ("HTML", "<p>Error <style>"),
        ("control characters", &controls),
        ("phrases", "overloaded, rate limit exceeded; "),
        (
            "halves of phrases",
            "limit context exceeds model prompt tokens ",
        ),
        ("right-to-left", "\u{202e}خطأ "),
        ("hints", "retry after 5s resets in 3h "),
    ];
    for (name, unit) in units {
        let texts = [3_000, 12_000, 1_000_000].map(|len| {
            let mut text = unit.repeat(len / unit.len() + 1);
            text.truncate(text.floor_char_boundary(len));
            text
        });
        let [small, whole, huge] = in_turn(&texts, |text| verdict(classifier, text));
        table.figure(
            format!("{name}: growth when the size doubles, up to 12 kB"),
            // Two doublings.
            Some((whole / small).sqrt()),
            "×",
            AtMost(2.2),
        );
        // As much is read, but with the middle left out it can be something else.
        table.ratio(
            format!("{name}: 1 MB / 12 kB"),
            Some(huge),
            Some(whole),
            AtMost(3.0),
        );
    }
}

fn regex_set() -> RegexSet {
    let all = Classifier::patterns()
        .flatten()
        .map(|pattern| regex_of(pattern));
    RegexSetBuilder::new(all)
        .case_insensitive(true)
        .unicode(false)
        .size_limit(1 << 28)
        .dfa_size_limit(1 << 28)
        .build()
        .expect("the phrases make a set")
}

/// A pattern of the rules as one would write it as a regular expression: blanks between words are anything that is no
/// letter, `#` is a number, `@` a name, and a gap is anything on the line.
fn regex_of(pattern: &str) -> String {
    let mut regex = String::new();
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            ' ' if chars.peek() == Some(&'…') => {}
            ' ' => regex.push_str(r"[\s_-]*"),
            '…' => {
                chars.next_if_eq(&' ');
                regex.push_str(".*");
            }
            '#' => regex.push_str(r"\d[\d.,]*"),
            '@' => regex.push_str(r"\S+"),
            '*' => regex.push_str(r"\w*"),
            '(' => regex.push_str("(?:"),
            ')' | '|' | '^' | '$' => regex.push(c),
            c => regex.push_str(&regex::escape(c.encode_utf8(&mut [0; 4]))),
        }
    }
    regex
}
