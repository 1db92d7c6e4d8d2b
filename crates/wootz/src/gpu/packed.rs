//! WGSL text that reads and writes elements of any dtype. Types narrower than a word live packed
//! in `u32` words; kernels compute in the wide type of the dtype's class.

use crate::array::{Class, DType};

/// The WGSL type that elements of a class are computed in. There are no doubles on a GPU.
pub fn wgsl_type(class: Class) -> &'static str {
    match class {
        Class::U32 => "u32",
        Class::I32 => "i32",
        Class::U64 => "u64",
        Class::I64 => "i64",
        Class::F32 | Class::F64 => "f32",
        Class::C64 => "vec2f",
    }
}

/// Elements per 32-bit word; 1 for types of a word or more.
pub fn per_word(dtype: DType) -> usize {
    (4 / dtype.size()).max(1)
}

/// The type of a buffer's array elements.
fn storage_type(dtype: DType) -> &'static str {
    if per_word(dtype) > 1 { "u32" } else { wgsl_type(dtype.class()) }
}

/// Conversions between packed bits and computed values; part of every kernel on packed types.
pub const PACKING: &str = include_str!("snippets/packing.wgsl");

/// Declares a buffer to read as `name_data`, and `name(i)` that loads element `i` widened.
pub fn reader(name: &str, binding: usize, dtype: DType) -> String {
    let storage = storage_type(dtype);
    format!(
        "@group(0) @binding({binding}) var<storage, read> {name}_data: array<{storage}>;\n{}",
        load_function(name, &format!("{name}_data"), dtype)
    )
}

/// `name(i)` that loads element `i` from the array `data`.
pub fn load_function(name: &str, data: &str, dtype: DType) -> String {
    let (result, body) = match per_word(dtype) {
        1 => (wgsl_type(dtype.class()), format!("{data}[i]")),
        _ => {
            let (shift, mask) = if dtype.size() == 2 { (1, 1) } else { (2, 3) };
            let word = format!("wz_widen_{}({data}[i >> {shift}u], i & {mask}u)", dtype.name());
            (wgsl_type(dtype.class()), word)
        }
    };
    format!("fn {name}(i: u32) -> {result} {{ return {body}; }}\n")
}

/// Declares an output as `name_data` and `name_set(i, value)`, which stores one element. Elements of
/// packed types are merged into their word atomically, so neighbours may be stored by anyone.
pub fn writer(name: &str, binding: usize, dtype: DType) -> String {
    let wide = wgsl_type(dtype.class());
    if per_word(dtype) == 1 {
        return format!(
            "@group(0) @binding({binding}) var<storage, read_write> {name}_data: array<{wide}>;\n\
             fn {name}_set(i: u32, value: {wide}) {{ {name}_data[i] = value; }}\n"
        );
    }
    let (shift, mask, bits) = if dtype.size() == 2 { (1, 1, 16) } else { (2, 3, 8) };
    let all = if bits == 16 { "0xffffu" } else { "0xffu" };
    format!(
        "@group(0) @binding({binding}) var<storage, read_write> {name}_data: array<atomic<u32>>;\n\
         fn {name}_set(i: u32, value: {wide}) {{\n\
         let lane = (i & {mask}u) * {bits}u;\n\
         atomicAnd(&{name}_data[i >> {shift}u], ~({all} << lane));\n\
         atomicOr(&{name}_data[i >> {shift}u], wz_narrow_{}(value) << lane);\n\
         }}\n",
        dtype.name()
    )
}

/// `name(i)` that loads element `i` from the output that [`writer`] declared as `output`, for an
/// input that gave its memory to it.
pub fn load_written(name: &str, output: &str, dtype: DType) -> String {
    if per_word(dtype) == 1 {
        return load_function(name, &format!("{output}_data"), dtype);
    }
    let (shift, mask) = if dtype.size() == 2 { (1, 1) } else { (2, 3) };
    let wide = wgsl_type(dtype.class());
    format!(
        "fn {name}(i: u32) -> {wide} {{\n\
         return wz_widen_{}(atomicLoad(&{output}_data[i >> {shift}u]), i & {mask}u);\n\
         }}\n",
        dtype.name()
    )
}

/// Declares an output of whole words as `name_data`, for kernels whose threads own words:
/// [`narrow`] makes its parts.
pub fn word_writer(name: &str, binding: usize, dtype: DType) -> String {
    let storage = storage_type(dtype);
    format!(
        "@group(0) @binding({binding}) var<storage, read_write> {name}_data: array<{storage}>;\n"
    )
}

/// The bits of a computed value, in the low bits of a `u32`; only for packed types.
pub fn narrow(dtype: DType, value: &str) -> String {
    format!("wz_narrow_{}({value})", dtype.name())
}

/// A computed value rounded or wrapped to what the dtype holds.
pub fn round(dtype: DType, value: &str) -> String {
    match dtype {
        DType::Bool => format!("select(0u, 1u, ({value}) != 0u)"),
        _ if per_word(dtype) == 1 => value.to_string(),
        DType::F16 | DType::BF16 => format!("wz_round_{}({value})", dtype.name()),
        _ => format!("wz_widen_{0}(wz_narrow_{0}({value}), 0u)", dtype.name()),
    }
}

/// A value of one class converted to a dtype (before rounding to it).
pub fn convert(from: Class, to: DType, value: &str) -> String {
    match (from, to) {
        (Class::C64, DType::C64) => return value.to_string(),
        (Class::C64, DType::Bool) => {
            let parts = format!("((bitcast<vec2u>({value}) & vec2u(0x7fffffffu)) != vec2u())");
            return format!("select(0u, 1u, any{parts})");
        }
        (Class::C64, _) => return convert(Class::F32, to, &format!("({value}).x")),
        (_, DType::C64) => return format!("vec2f({}, 0.0)", convert(from, DType::F32, value)),
        _ => {}
    }
    let zero = match from {
        Class::F32 | Class::F64 | Class::C64 => "0.0",
        Class::U32 => "0u",
        Class::I32 => "0i",
        Class::U64 => "0lu",
        Class::I64 => "0li",
    };
    if to == DType::Bool {
        return match from {
            // On the bits, because fast math may assume that there are no NaNs.
            Class::F32 | Class::F64 => {
                format!("select(0u, 1u, (bitcast<u32>({value}) & 0x7fffffffu) != 0u)")
            }
            _ => format!("select(0u, 1u, {value} != {zero})"),
        };
    }
    let target = wgsl_type(to.class());
    match (from, to.class()) {
        (a, b) if wgsl_type(a) == wgsl_type(b) => value.to_string(),
        (Class::F32 | Class::F64, Class::I32) => format!("wz_f32_to_i32({value})"),
        (Class::F32 | Class::F64, Class::U32) if to.size() < 4 => {
            format!("bitcast<u32>(wz_f32_to_i32({value}))")
        }
        (Class::F32 | Class::F64, Class::U32) => format!("wz_f32_to_u32({value})"),
        // As the functions for 32 bits, which stand in a text that every device reads.
        (Class::F32 | Class::F64, Class::I64) => {
            let far = format!("(bitcast<u32>({value}) & 0x7fffffffu) >= 0x5f000000u");
            format!("select(i64({value}), (1li << 63u), {far})")
        }
        (Class::F32 | Class::F64, Class::U64) => {
            let bits = format!("bitcast<u32>({value})");
            let far = format!("({bits} & 0x7fffffffu) >= 0x5f000000u");
            let signed = format!("select(u64(i64({value})), (1lu << 63u), {far})");
            let large = format!("select(0lu, u64({value}), {bits} < 0x5f800000u)");
            format!("select({signed}, {large}, {bits} >= 0x5f000000u && {bits} <= 0x7f800000u)")
        }
        // By way of the wide signed type, so that the sign is kept whatever the driver does.
        (Class::I32, Class::U64) => format!("u64(i64({value}))"),
        _ => format!("{target}({value})"),
    }
}

/// Threads of a workgroup of [`word_main`].
pub const WORD_MAIN_GROUP: usize = 256;

/// An entry point that computes `function(i)` for every element below `count` of the output `out`
/// (a [`word_writer`]), one thread per word.
pub fn word_main(dtype: DType, count: &str, function: &str) -> String {
    let per_word = per_word(dtype);
    let mut body = String::new();
    if per_word == 1 {
        body.push_str(&format!("out_data[word] = {function}(first);\n"));
    } else {
        body.push_str("var bits = 0u;\n");
        for lane in 0..per_word {
            let (bits, shift) =
                (narrow(dtype, &format!("{function}(first + {lane}u)")), 32 / per_word);
            body.push_str(&format!(
                "if (first + {lane}u < {count}) {{ bits |= {bits} << {}u; }}\n",
                lane * shift
            ));
        }
        body.push_str("out_data[word] = bits;\n");
    }
    format!(
        "@compute @workgroup_size({WORD_MAIN_GROUP})\n\
         fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) groups: vec3u,\n\
         @builtin(local_invocation_index) lid: u32) {{\n\
         let word = (wid.x + wid.y * groups.x) * {WORD_MAIN_GROUP}u + lid;\n\
         let first = word * {per_word}u;\n\
         if (first >= {count}) {{ return; }}\n{body}}}\n"
    )
}
