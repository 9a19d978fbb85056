//! Models of the VMA lock that is a count: see `model/vma.rs`.

use crate::model::apart;
use crate::model::vma;
use softfault_engine_loom::policy::VmaLockKind::Refcount;

#[test]
fn reader_against_reuse_in_another_space() {
    vma::reader_against_reuse_in_another_space(Refcount, None);
}

#[test]
fn reader_against_reuse_for_another_range() {
    vma::reader_against_reuse_for_another_range(Refcount, None);
}

#[test]
fn reader_of_the_new_mapping_against_reuse() {
    vma::reader_of_the_new_mapping_against_reuse(Refcount, None);
}

#[test]
fn reader_against_attach() {
    vma::reader_against_attach(Refcount, None);
}

#[test]
fn writer_against_two_readers() {
    vma::writer_against_two_readers(Refcount, Some(3));
}

#[test]
fn two_writers_against_a_reader() {
    vma::two_writers_against_a_reader(Refcount, Some(2));
}

#[test]
fn writer_against_a_reader_that_comes_twice() {
    vma::writer_against_a_reader_that_comes_twice(Refcount, None);
}

#[test]
fn readers_at_the_limit() {
    apart(|| {
        vma::readers_at_the_limit(Refcount, None);
    });
}

#[test]
fn a_reader_at_the_limit_against_a_writer() {
    vma::a_reader_at_the_limit_against_a_writer(Refcount, Some(3));
}

#[test]
fn letting_mmap_lock_go_ends_all_write_locks() {
    vma::letting_mmap_lock_go_ends_all_write_locks(Refcount, None);
}

#[test]
fn locked_reader_against_a_writer() {
    vma::locked_reader_against_a_writer(Refcount, None);
}

#[test]
fn the_last_put_wakes_a_writer_whose_space_is_gone() {
    apart(|| {
        vma::the_last_put_wakes_a_writer_whose_space_is_gone(Refcount, Some(5));
    });
}

#[test]
fn a_slot_that_another_space_claims() {
    apart(|| {
        vma::a_slot_that_another_space_claims(Refcount, None);
    });
}
