//! Builds every `.wgsl` file of a folder and says which are refused, and how long it took:
//! `cargo run -p metal-sim --example build_folder -- FOLDER CACHE [checked] [fast] [counting]`

use std::path::Path;
use std::time::Instant;

use metal_sim::{Build, Cache, Kernel, Library, Toolchain};

fn main() -> Result<(), String> {
    let arguments = std::env::args().skip(1).collect::<Vec<_>>();
    let [folder, cache, words @ ..] = &arguments[..] else {
        return Err("a folder of kernels and a folder for the cache are needed".into());
    };
    let has = |word: &str| words.iter().any(|given| given == word);
    let build =
        Build { checked: has("checked"), fast_math: has("fast"), counting: has("counting") };
    let text = |error: std::io::Error| error.to_string();
    let mut kernels = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(text)? {
        let path = entry.map_err(text)?.path();
        if path.extension().is_some_and(|extension| extension == "wgsl") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            kernels.push(Kernel::wgsl(name, std::fs::read_to_string(&path).map_err(text)?));
        }
    }
    kernels.sort_by(|a, b| a.name.cmp(&b.name));
    let cache = Cache::open(Path::new(cache), Toolchain::find()?)?;
    let start = Instant::now();
    let (library, error) = Library::build_all(&cache, &kernels, build);
    println!(
        "{} built, {} refused, {:?}",
        library.kernels().count(),
        error.refused.len(),
        start.elapsed()
    );
    for (name, message) in error.refused.iter().take(20) {
        println!("{name}: {message}");
    }
    Ok(())
}
