// A tile of a product: where its matrices begin, its first row and column, and how many rows and
// products of a sum there are.
struct Place { batch: u32, a: u32, b: u32, c: u32, top: u32, left: u32, m: u32, k: u32 }
