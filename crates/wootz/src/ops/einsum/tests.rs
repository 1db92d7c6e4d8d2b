//! Tests of `einsum`: values against plain loops, paths against what MLX says, and errors.

use std::collections::{BTreeMap, HashSet};

use super::*;
use crate::array::DType;
use crate::ops::{arange, sin};

fn filled(shape: &[usize]) -> Array {
    let size = shape.iter().product::<usize>() as i64;
    let numbers = arange(1, size + 1, 1, DType::F64).unwrap();
    sin(&numbers).unwrap().reshape(shape).unwrap()
}

/// Loops over every value of every letter. Subscripts have letters only, and an output.
fn by_loops(subscripts: &str, operands: &[Array]) -> (Vec<usize>, Vec<f64>) {
    let (left, output) = subscripts.split_once("->").unwrap();
    let terms: Vec<&str> = left.split(',').collect();
    let mut lengths = BTreeMap::new();
    for (term, operand) in terms.iter().zip(operands) {
        for (letter, &length) in term.chars().zip(operand.shape()) {
            let known = lengths.entry(letter).or_insert(1);
            *known = if *known == 1 { length } else { *known };
        }
    }
    let letters: Vec<char> = lengths.keys().copied().collect();
    let shape: Vec<usize> = output.chars().map(|letter| lengths[&letter]).collect();
    let values: Vec<Vec<f64>> = operands.iter().map(|x| x.to_vec::<f64>().unwrap()).collect();
    let mut result = vec![0.0; shape.iter().product()];
    let total: usize = lengths.values().product();
    for mut number in 0..total {
        let mut at = BTreeMap::new();
        for letter in &letters {
            at.insert(*letter, number % lengths[letter]);
            number /= lengths[letter];
        }
        let place = |term: &str, shape: &[usize]| {
            term.chars().zip(shape).fold(0, |place, (letter, &length)| {
                place * length + if length == 1 { 0 } else { at[&letter] }
            })
        };
        let term = |i: usize| values[i][place(terms[i], operands[i].shape())];
        result[place(output, &shape)] += (0..terms.len()).map(term).product::<f64>();
    }
    (shape, result)
}

#[test]
fn values_are_those_of_plain_loops() {
    let cases: &[(&str, &[&[usize]])] = &[
        ("->", &[&[]]),
        (",->", &[&[], &[]]),
        (",i->i", &[&[], &[3]]),
        ("ij->ji", &[&[2, 3]]),
        ("iji->j", &[&[3, 2, 3]]),
        ("ijij->ji", &[&[3, 2, 3, 2]]),
        ("iii->i", &[&[3, 3, 3]]),
        ("ij,jk->ki", &[&[2, 3], &[3, 4]]),
        ("ij,ij->", &[&[2, 3], &[2, 3]]),
        ("ij,kj->", &[&[2, 3], &[4, 3]]),
        ("ij,jk->ik", &[&[2, 3], &[1, 4]]),
        ("ij,ij->i", &[&[2, 1], &[1, 3]]),
        ("abc,cbd->bad", &[&[2, 3, 4], &[4, 3, 5]]),
        ("ab,ac,ad->abcd", &[&[2, 3], &[2, 4], &[2, 2]]),
        ("eb,cb,fb->cef", &[&[2, 5], &[3, 5], &[4, 5]]),
        ("ab,bc,ad->cd", &[&[1, 3], &[3, 2], &[4, 2]]),
        ("ac,bc,ad,ae->bde", &[&[1, 2], &[3, 2], &[1, 2], &[4, 3]]),
        ("abcd,ea,fb,gc,hd->efgh", &[&[2, 3, 2, 3], &[2, 2], &[3, 3], &[2, 2], &[2, 3]]),
        ("bcb,bb,fc,fff->", &[&[2, 3, 2], &[2, 2], &[4, 3], &[4, 4, 4]]),
        ("adb,bc,fa,cfc->d", &[&[2, 3, 4], &[4, 2], &[5, 2], &[2, 5, 2]]),
        ("ij,jk->ik", &[&[2, 0], &[0, 3]]),
        ("ij,jk->ik", &[&[0, 2], &[2, 3]]),
    ];
    for (subscripts, shapes) in cases {
        let operands: Vec<Array> = shapes.iter().map(|shape| filled(shape)).collect();
        let result = einsum(subscripts, &operands).unwrap();
        let (shape, expected) = by_loops(subscripts, &operands);
        assert_eq!(result.shape(), shape, "{subscripts}");
        for (got, expected) in result.to_vec::<f64>().unwrap().iter().zip(&expected) {
            assert!((got - expected).abs() < 1e-12, "{subscripts}: {got} for {expected}");
        }
    }
}

#[test]
fn dots_and_missing_outputs_mean_the_subscripts_they_stand_for() {
    let cases: &[(&str, &str, &[&[usize]])] = &[
        ("ij,jk", "ij,jk->ik", &[&[2, 3], &[3, 4]]),
        ("ba", "ba->ab", &[&[2, 3]]),
        ("bA", "bA->Ab", &[&[2, 3]]),
        ("ii", "ii->", &[&[3, 3]]),
        (" i j , j k -> i k ", "ij,jk->ik", &[&[2, 3], &[3, 4]]),
        ("b...a", "bxya->xyab", &[&[2, 3, 4, 5]]),
        ("...i->i", "xi->i", &[&[4, 3]]),
        ("i->i...", "i->i", &[&[3]]),
        ("...,...", "xy,y->xy", &[&[2, 3], &[3]]),
        ("...i,...i->...", "xyi,yi->xy", &[&[5, 1, 3], &[4, 3]]),
        ("a...b,b...c->...ac", "axb,bxc->xac", &[&[2, 5, 3], &[3, 5, 4]]),
        ("ab...,b...->ab...", "abx,bx->abx", &[&[2, 3, 4], &[3, 4]]),
    ];
    for (short, long, shapes) in cases {
        let operands: Vec<Array> = shapes.iter().map(|shape| filled(shape)).collect();
        let [a, b] = [short, long].map(|subscripts| einsum(subscripts, &operands).unwrap());
        assert_eq!(a.shape(), b.shape(), "{short}");
        assert_eq!(a.to_vec::<f64>().unwrap(), b.to_vec::<f64>().unwrap(), "{short}");
    }
}

#[test]
fn paths_are_those_of_mlx() {
    let cases: &[(&str, &[&[usize]], &[&[usize]], [u128; 4])] = &[
        ("ij->i", &[&[2, 3]], &[&[0]], [2, 2, 12, 12]),
        ("->", &[&[]], &[&[0]], [0, 0, 1, 1]),
        ("i,i,i->i", &[&[3], &[3], &[3]], &[&[0, 1], &[0, 1]], [1, 1, 6, 6]),
        ("ab,ab->", &[&[2, 5], &[1, 5]], &[&[0, 1]], [2, 2, 20, 20]),
        ("ab,cd,ef->", &[&[2, 5], &[1, 5], &[2, 2]], &[&[0, 1], &[0, 1]], [6, 4, 600, 108]),
        ("ab,cd,ef->abcdef", &[&[2, 5], &[1, 5], &[2, 2]], &[&[1, 2], &[0, 1]], [6, 6, 400, 220]),
        ("aab,bc,c->a", &[&[2, 2, 5], &[5, 5], &[5]], &[&[1, 2], &[0, 1]], [3, 2, 150, 70]),
        ("eb,cb,fb->cef", &[&[2, 5], &[3, 5], &[4, 5]], &[&[0, 1, 2]], [4, 4, 360, 360]),
        (
            "bcb,bb,fc,fff->",
            &[&[2, 3, 2], &[2, 2], &[4, 3], &[4, 4, 4]],
            &[&[2, 3], &[0, 2], &[0, 1]],
            [3, 2, 96, 40],
        ),
        (
            "ea,fb,gc,hd,abcd->efgh",
            &[&[3, 3], &[3, 3], &[3, 3], &[3, 3], &[3, 3, 3, 3]],
            &[&[0, 4], &[0, 3], &[0, 2], &[0, 1]],
            [8, 5, 32805, 1944],
        ),
        (
            "acdf,jbje,gihb,hfac,gfac,gifabc,hfac",
            &[&[3; 4], &[3; 4], &[3; 4], &[3; 4], &[3; 4], &[3; 6], &[3; 4]],
            &[&[3, 6], &[3, 4], &[2, 4], &[2, 3], &[0, 2], &[0, 1]],
            [10, 7, 413343, 6318],
        ),
    ];
    for (subscripts, shapes, contractions, [naive, optimized, all, flops]) in cases {
        let operands: Vec<Array> = shapes.iter().map(|shape| filled(shape)).collect();
        let path = einsum_path(subscripts, &operands).unwrap();
        assert_eq!(path.contractions, *contractions, "{subscripts}");
        let expected = format!(
            "  Complete contraction:  {subscripts}\n         Naive scaling:  {naive}\n     \
             Optimized scaling:  {optimized}\n      Naive FLOP count:  {all}\n  \
             Optimized FLOP count:  {flops}\n"
        );
        assert_eq!(path.to_string(), expected);
    }
}

#[test]
fn a_contraction_holds_nothing_larger_than_operands_and_result() {
    let cases: &[(&str, &[&[usize]])] = &[
        ("ij,jk->ik", &[&[20, 30], &[30, 40]]),
        ("bhqd,bhkd->bhqk", &[&[2, 3, 10, 8], &[2, 3, 12, 8]]),
        ("abcd,cdef->feba", &[&[4, 3, 5, 6], &[5, 6, 2, 3]]),
        ("...c,cd", &[&[3, 4, 5], &[5, 6]]),
        ("ij,ij->", &[&[20, 30], &[20, 30]]),
    ];
    for (subscripts, shapes) in cases {
        let operands: Vec<Array> = shapes.iter().map(|shape| filled(shape)).collect();
        operands.iter().for_each(|operand| operand.eval().unwrap());
        let result = einsum(subscripts, &operands).unwrap();
        let most = operands.iter().chain([&result]).map(Array::size).max().unwrap();
        let (mut names, mut left) = (HashSet::new(), vec![result]);
        while let Some(array) = left.pop() {
            let Some((op, inputs)) = array.producer() else { continue };
            names.insert(op.name());
            assert!(inputs.iter().all(|input| input.size() <= most), "{subscripts}");
            left.extend(inputs);
        }
        assert!(names.contains("matmul"), "{subscripts}: {names:?}");
    }
}

#[test]
fn integers_are_multiplied_and_summed_as_in_mlx() {
    let whole = |shape: &[usize]| {
        let size = shape.iter().product::<usize>() as i64;
        arange(0, size, 1, DType::I32).unwrap().reshape(shape).unwrap()
    };
    let product = einsum("i,j->ij", &[whole(&[3]), whole(&[2])]).unwrap();
    assert_eq!(product.to_vec::<i32>().unwrap(), [0, 0, 0, 1, 0, 2]);
    let diagonal = einsum("ii,ij->i", &[whole(&[2, 2]), whole(&[2, 3])]).unwrap();
    assert_eq!(diagonal.to_vec::<i32>().unwrap(), [0, 36]);
    let truths = whole(&[2, 3]).astype(DType::Bool).unwrap();
    assert_eq!(einsum("ij->i", &[truths]).unwrap().to_vec::<i32>().unwrap(), [2, 3]);
    let error = einsum("ij,jk->ik", &[whole(&[2, 3]), whole(&[3, 2])]).unwrap_err().to_string();
    assert!(error.contains("\"ij,jk->ik\"") && error.contains("int32"), "{error}");
}

#[test]
fn errors_name_the_subscripts() {
    let wrong: &[(&str, &[&[usize]], &str)] = &[
        ("ij,jk->ik", &[&[2, 3]], "as many terms as operands, which are 1"),
        ("ij->ij", &[&[2, 3], &[2, 3]], "as many terms as operands, which are 2"),
        ("->", &[], "as many terms as operands, which are 0"),
        ("i->ii", &[&[3]], "no subscript twice in the output"),
        ("i->k", &[&[3]], "subscripts in the output that operands have"),
        ("1->1", &[&[3]], "and not '1'"),
        ("i->i->i", &[&[3]], "and not '-'"),
        ("i\tj->ij", &[&[3, 2]], "and not '\\t'"),
        ("ä->ä", &[&[3]], "and not 'ä'"),
        ("..i->i", &[&[4, 3]], "and not '.'"),
        ("....i->i", &[&[4, 3]], "and not '.'"),
        ("...i...->i", &[&[4, 3]], "at most once in a term"),
        ("a...b...c,a...b...c->abc", &[&[2; 5], &[2; 5]], "at most once in a term"),
        ("ijk->i", &[&[4, 3]], "expected shape one of 3 axes"),
        ("...ijk->i", &[&[4, 3]], "expected shape one of at least 3 axes"),
        ("ii->i", &[&[2, 3]], "axes 0 and 1 of one length"),
        ("ii->i", &[&[1, 3]], "axes 0 and 1 of one length"),
        (
            "ij,jk->ik",
            &[&[2, 3], &[4, 2]],
            "operands[1]: expected shape length 3 or 1 along axis 0",
        ),
        ("...i,...i", &[&[2, 3], &[4, 3]], "length 2 or 1 along axis 0"),
    ];
    for (subscripts, shapes, words) in wrong {
        let operands: Vec<Array> = shapes.iter().map(|shape| filled(shape)).collect();
        let error = einsum(subscripts, &operands).unwrap_err().to_string();
        assert!(error.starts_with("[einsum] ") && error.contains(words), "{error}");
        assert!(error.contains(&format!("{subscripts:?}")), "{error}");
        assert!(einsum_path(subscripts, &operands).is_err());
    }
}
