//! `#[derive(Tree)]`: structures and enums whose fields hold arrays, as trees of parameters.
//! Use it through `wootz`, which exports it beside the trait `Tree`.

use std::collections::HashSet;

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Field, Fields, GenericParam, LitStr, Result, parse_quote};

/// Implements `wootz::Tree`: every field is a branch with the field's name.
///
/// - `#[wootz(rename = "Wx")]` on a field: another name, such as the checkpoint's, that no other has.
/// - `#[wootz(skip)]` on a field: not part of the tree. Numbers, truth values and strings need no
///   `skip`: they are trees without leaves.
/// - `#[wootz(value)]` on a field: a value without arrays, whose `Hash` is part of the fingerprint.
/// - The only field of a tuple structure or of an enum's variant adds no name of its own; several
///   are named by their numbers. An enum is the tree of its present variant.
#[proc_macro_derive(Tree, attributes(wootz))]
pub fn derive_tree(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = syn::parse_macro_input!(input as DeriveInput);
    expand(input).unwrap_or_else(Error::into_compile_error).into()
}

fn expand(mut input: DeriveInput) -> Result<TokenStream> {
    for parameter in &mut input.generics.params {
        if let GenericParam::Type(parameter) = parameter {
            parameter.bounds.push(parse_quote!(::wootz::Tree));
        }
    }
    let variants: Vec<(TokenStream, &Fields)> = match &input.data {
        Data::Struct(data) => vec![(quote!(Self), &data.fields)],
        Data::Enum(data) => {
            let variant = |v: &'_ syn::Variant| {
                let name = &v.ident;
                quote!(Self::#name)
            };
            data.variants.iter().map(|v| (variant(v), &v.fields)).collect()
        }
        Data::Union(_) => return Err(Error::new(input.span(), "a union cannot be a tree")),
    };
    let shared = arms(&variants, |place, name| match name {
        Some(name) => {
            quote!(path.within(#name, |path| ::wootz::Tree::visit(#place, path, visitor));)
        }
        None => quote!(::wootz::Tree::visit(#place, path, visitor);),
    })?;
    let exclusive = arms(&variants, |place, name| match name {
        Some(name) => {
            quote!(path.within(#name, |path| ::wootz::Tree::visit_mut(#place, path, visitor))?;)
        }
        None => quote!(::wootz::Tree::visit_mut(#place, path, visitor)?;),
    })?;
    let modules = arms(&variants, |place, name| match name {
        Some(name) => {
            quote!(path.within(#name, |path| ::wootz::Tree::visit_modules(#place, path, visitor));)
        }
        None => quote!(::wootz::Tree::visit_modules(#place, path, visitor);),
    })?;
    let written = fingerprints(&variants)?;
    let name = &input.ident;
    let (generics, arguments, conditions) = input.generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        #[allow(unused_variables)]
        impl #generics ::wootz::Tree for #name #arguments #conditions {
            fn visit(
                &self,
                path: &mut ::wootz::tree::Path,
                visitor: &mut dyn ::std::ops::FnMut(&str, ::wootz::tree::Leaf<'_>),
            ) {
                match self { #shared }
            }

            fn visit_modules<'tree>(
                &'tree self,
                path: &mut ::wootz::tree::Path,
                visitor: &mut dyn ::std::ops::FnMut(&str, ::wootz::tree::Part<'tree>),
            ) {
                visitor(path.name(), ::wootz::tree::Part::new(self, path));
                path.inside(|path| match self { #modules });
            }

            fn visit_mut(
                &mut self,
                path: &mut ::wootz::tree::Path,
                visitor: &mut dyn ::std::ops::FnMut(
                    &str,
                    ::wootz::tree::Slot<'_>,
                ) -> ::wootz::Result<()>,
            ) -> ::wootz::Result<()> {
                match self { #exclusive }
                ::std::result::Result::Ok(())
            }

            fn fingerprint(&self, mut state: &mut dyn ::std::hash::Hasher) {
                // Boxed modules of other types can have the same fields.
                ::std::hash::Hash::hash(::std::any::type_name::<Self>(), &mut state);
                match self { #written }
            }
        }
    })
}

/// One arm for each variant: its fields bound by reference, and a call for each that counts.
fn arms(
    variants: &[(TokenStream, &Fields)],
    call: impl Fn(&syn::Ident, Option<&str>) -> TokenStream,
) -> Result<TokenStream> {
    let mut arms = TokenStream::new();
    for (pattern, fields) in variants {
        let (mut bindings, mut calls) = (TokenStream::new(), TokenStream::new());
        let alone = matches!(fields, Fields::Unnamed(_)) && fields.len() == 1;
        let mut names = HashSet::new();
        for (index, field) in fields.iter().enumerate() {
            let place = format_ident!("field_{index}");
            match &field.ident {
                Some(name) => bindings.extend(quote!(#name: #place,)),
                None => bindings.extend(quote!(#place,)),
            }
            let name = match attributes(field)? {
                Attributes::Skip | Attributes::Value => continue,
                Attributes::Name(None) if alone => {
                    calls.extend(call(&place, None));
                    continue;
                }
                Attributes::Name(Some(name)) => name,
                Attributes::Name(None) => match &field.ident {
                    Some(name) => name.to_string().trim_start_matches("r#").to_string(),
                    None => index.to_string(),
                },
            };
            calls.extend(call(&place, Some(&name)));
            if !names.insert(name) {
                return Err(Error::new(field.span(), "another field has this name already"));
            }
        }
        arms.extend(match fields {
            Fields::Named(_) => quote!(#pattern { #bindings } => { #calls }),
            Fields::Unnamed(_) => quote!(#pattern(#bindings) => { #calls }),
            Fields::Unit => quote!(#pattern => {}),
        });
    }
    Ok(arms)
}

/// One arm for each variant, which writes the variant, if there are several, and every field but skipped ones.
fn fingerprints(variants: &[(TokenStream, &Fields)]) -> Result<TokenStream> {
    let mut arms = TokenStream::new();
    for (number, (pattern, fields)) in variants.iter().enumerate() {
        let (mut bindings, mut calls) = (TokenStream::new(), TokenStream::new());
        if variants.len() > 1 {
            calls.extend(quote!(state.write_usize(#number);));
        }
        for (index, field) in fields.iter().enumerate() {
            let place = format_ident!("field_{index}");
            match &field.ident {
                Some(name) => bindings.extend(quote!(#name: #place,)),
                None => bindings.extend(quote!(#place,)),
            }
            calls.extend(match attributes(field)? {
                Attributes::Skip => quote!(),
                Attributes::Value => quote!(::std::hash::Hash::hash(#place, &mut state);),
                Attributes::Name(_) => quote!(::wootz::Tree::fingerprint(#place, state);),
            });
        }
        arms.extend(match fields {
            Fields::Named(_) => quote!(#pattern { #bindings } => { #calls }),
            Fields::Unnamed(_) => quote!(#pattern(#bindings) => { #calls }),
            Fields::Unit => quote!(#pattern => { #calls }),
        });
    }
    Ok(arms)
}

/// What the attributes of a field say.
enum Attributes {
    Skip,
    /// Only its hash counts.
    Value,
    /// The name to use, if it is not the field's.
    Name(Option<String>),
}

fn attributes(field: &Field) -> Result<Attributes> {
    let (mut skip, mut value, mut name) = (false, false, None);
    for attribute in field.attrs.iter().filter(|a| a.path().is_ident("wootz")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("skip") {
                skip = true;
            } else if meta.path.is_ident("value") {
                value = true;
            } else if meta.path.is_ident("rename") {
                let text: LitStr = meta.value()?.parse()?;
                if text.value().is_empty() {
                    return Err(Error::new(text.span(), "a name has at least one character"));
                }
                name = Some(text.value());
            } else {
                return Err(meta.error("known are `skip`, `value` and `rename = \"name\"`"));
            }
            Ok(())
        })?;
    }
    match (skip, value, name) {
        (true, true, _) => Err(Error::new(field.span(), "a skipped field is no value")),
        (true, _, Some(_)) | (_, true, Some(_)) => {
            Err(Error::new(field.span(), "a field that is no branch needs no name"))
        }
        (true, false, None) => Ok(Attributes::Skip),
        (false, true, None) => Ok(Attributes::Value),
        (false, false, name) => Ok(Attributes::Name(name)),
    }
}
