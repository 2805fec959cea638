pub mod jinja;
