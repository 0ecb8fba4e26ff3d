//! What the protocol core costs: `cargo bench --no-default-features --bench parser`.
//!
//! The request is the twelve-header GET of `ci/bench`; `httparse_alone` is the floor under `head`.

#[path = "shared/browser.rs"]
mod browser;

use std::hint::black_box;

use browser::GET;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use m0serve::http1::{BodySize, Event, Head, Limits, RequestReader, ResponseHead, ResponseWriter};

const DATE: &[u8; 29] = b"Sun, 06 Nov 1994 08:49:37 GMT";

fn requests(c: &mut Criterion) {
    let (mut head, limits) = (Head::default(), Limits::default());
    let mut group = c.benchmark_group("request");
    group.throughput(Throughput::Bytes(GET.len() as u64));
    group.bench_function("httparse_alone", |b| {
        b.iter(|| {
            let mut fields = [httparse::EMPTY_HEADER; 32];
            httparse::Request::new(&mut fields)
                .parse(black_box(GET))
                .map(|status| status.unwrap())
        });
    });
    group.bench_function("head", |b| {
        b.iter(|| RequestReader::new().next_event(black_box(GET), &mut head, &limits));
    });
    group.bench_function("head_in_two_reads", |b| {
        b.iter(|| {
            let mut reader = RequestReader::new();
            _ = reader.next_event(black_box(&GET[..GET.len() / 2]), &mut head, &limits);
            reader.next_event(black_box(GET), &mut head, &limits)
        });
    });
    let post = [
        with_first_line(b"POST / HTTP/1.1\r\nContent-Length: 13", GET),
        b"hello, world!".to_vec(),
    ]
    .concat();
    group.bench_function("head_and_counted_body", |b| {
        b.iter(|| {
            let mut reader = RequestReader::new();
            let Ok(Event::Head { consumed }) =
                reader.next_event(black_box(&post), &mut head, &limits)
            else {
                panic!("a head")
            };
            reader.next_event(black_box(&post[consumed..]), &mut head, &limits)
        });
    });
    group.finish();

    let mut body = Vec::new();
    for _ in 0..64 {
        body.extend_from_slice(b"400\r\n");
        body.extend_from_slice(&[b'x'; 1024]);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"0\r\n\r\n");
    let start = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut group = c.benchmark_group("chunked");
    group.throughput(Throughput::Bytes(body.len() as u64));
    group.bench_function("64_chunks_of_1_KiB", |b| {
        b.iter(|| {
            let mut reader = RequestReader::new();
            reader.next_event(start, &mut head, &limits).unwrap();
            let (mut at, mut data) = (0, 0);
            loop {
                match reader
                    .next_event(black_box(&body[at..]), &mut head, &limits)
                    .unwrap()
                {
                    Event::Data { consumed, body } => {
                        at += consumed;
                        data += body.len();
                    }
                    Event::Skip { consumed } => at += consumed,
                    _ => return data,
                }
            }
        });
    });
    group.finish();
}

/// `head` with `line` for its first line.
fn with_first_line(line: &[u8], head: &[u8]) -> Vec<u8> {
    let end = head
        .iter()
        .position(|&byte| byte == b'\r')
        .unwrap_or(head.len());
    [line, &head[end..]].concat()
}

fn answers(c: &mut Criterion) {
    let (mut head, mut out) = (ResponseHead::new(), Vec::new());
    let mut group = c.benchmark_group("answer");
    group.bench_function("head_fields", |b| {
        b.iter(|| {
            head.clear();
            head.status(black_box(b"200 OK")).unwrap();
            head.field(black_box(b"Content-Type"), black_box(b"text/plain"))
                .unwrap();
            head.field(black_box(b"Content-Length"), black_box(b"13"))
                .unwrap();
        });
    });
    group.bench_function("counted_13_bytes", |b| {
        b.iter(|| {
            out.clear();
            let mut writer = ResponseWriter::new(m0serve::http1::Version::Http11, false, true);
            writer.head(&head, BodySize::Known(13), DATE, &mut out);
            writer.data(black_box(b"hello, world!"), &mut out);
            writer.end(&mut out);
            black_box(&out);
        });
    });
    group.bench_function("chunked_13_bytes", |b| {
        let head = ResponseHead::new();
        b.iter(|| {
            out.clear();
            let mut writer = ResponseWriter::new(m0serve::http1::Version::Http11, false, true);
            writer.head(&head, BodySize::Unknown, DATE, &mut out);
            writer.data(black_box(b"hello, world!"), &mut out);
            writer.end(&mut out);
            black_box(&out);
        });
    });
    group.finish();
}

criterion_group!(benches, requests, answers);
criterion_main!(benches);
