//! What a page costs, by size: stored in the file and dropped, as one that was located (`file`,
//! its slot is punched) and one that never was (`backed`, its slot is used as it is); stored on
//! the heap and dropped; copied into a socket, sent from the file.
//!
//! `cargo run --release -p forebay-pages --example price`

#![allow(
    clippy::cast_precision_loss,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a program that measures and prints"
)]

use std::{
    hint::black_box,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    time::Instant,
};

use bytes::Bytes;
use forebay_pages::{Arena, locate};

fn main() -> std::io::Result<()> {
    let (file, heap) = (Arena::new(256 << 20)?, Arena::on_heap(256 << 20));
    println!("pages lie in: {:?}; microseconds each", file.kind());
    println!(
        "{:>9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>10}",
        "bytes", "file", "backed", "heap", "write", "sendfile", "backed/file"
    );
    for length in [
        16 << 10,
        32 << 10,
        40 << 10,
        64 << 10,
        100 << 10,
        256 << 10,
        1 << 20,
        4 << 20,
    ] {
        let rounds = (256 << 20) / length;
        let source = Bytes::from(vec![7; length]);
        let time = |work: &mut dyn FnMut()| {
            let started = Instant::now();
            (0..rounds).for_each(|_| work());
            started.elapsed().as_secs_f64() * 1e6 / rounds as f64
        };
        let pieces: Vec<_> = source
            .chunks(16 << 10)
            .map(|c| source.slice_ref(c))
            .collect();
        let in_file = time(&mut || {
            let page = file.store(&pieces).expect("the arena is empty");
            black_box(locate(&page));
        });
        let backed = time(&mut || drop(black_box(file.store(&pieces))));
        let on_heap = time(&mut || drop(heap.store(&pieces)));
        let page = file.store(&pieces).expect("the arena is empty");
        let (sender, reader) = sink()?;
        let written = time(&mut || (&sender).write_all(&page).expect("the reader reads"));
        let sent = time(&mut || send(&sender, &page));
        drop(sender);
        reader.join().expect("the reader does not panic");
        let ratio = backed / in_file;
        println!(
            "{length:>9} {in_file:>8.1} {backed:>8.1} {on_heap:>8.1} {written:>8.1} {sent:>8.1} \
             {ratio:>10.2}"
        );
    }
    Ok(())
}

fn send(sender: &TcpStream, page: &[u8]) {
    let Some(located) = locate(page) else {
        return (&*sender).write_all(page).expect("the reader reads");
    };
    let (mut offset, end) = (located.offset, located.offset + page.len() as u64);
    while offset < end {
        let left = usize::try_from(end - offset).expect("no more than the page");
        rustix::fs::sendfile(sender, located.fd, Some(&mut offset), left).expect("reader reads");
    }
}

/// A socket whose other end reads and forgets.
fn sink() -> std::io::Result<(TcpStream, std::thread::JoinHandle<()>)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let sender = TcpStream::connect(listener.local_addr()?)?;
    let (mut receiver, _) = listener.accept()?;
    let reader = std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 20];
        while receiver.read(&mut buffer).is_ok_and(|count| count > 0) {}
    });
    Ok((sender, reader))
}
