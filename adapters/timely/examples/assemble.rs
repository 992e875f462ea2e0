//! Makes one trace of what several processes wrote into directories of their own.
//!
//! Copy the folders `events` and `parts` of all of them into DIR first.

fn main() {
    let Some(directory) = std::env::args().nth(1).filter(|argument| !argument.starts_with('-')) else {
        println!("Makes one trace of the parts in DIR/parts.\n\nUsage: assemble DIR");
        return;
    };
    if let Err(error) = pag_timely::assemble(directory) {
        eprintln!("{error}");
        std::process::exit(1);
    }
}
