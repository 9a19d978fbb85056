use softfault_engine_shuttle::PAGE_SIZE;
use softfault_oracle::{Rig, TestStore, together};
use sync::explore;

#[test]
fn touch_against_unmap() {
    explore::scenario("touch_against_unmap", 2000, |_| {
        let rig = Rig::new(2048);
        let store = TestStore::new(8 * 4096);
        store.close();
        let cache = rig.map(&store);
        let start = cache.addresses().start;
        let jobs: Vec<Box<dyn FnOnce() + Send>> = vec![
            Box::new(|| {
                for page in 0..3 {
                    let _ = rig.touch(start + page * PAGE_SIZE);
                }
            }),
            Box::new(|| rig.unmap(start..start + 2 * PAGE_SIZE)),
            Box::new(|| store.open()),
        ];
        together(jobs);
        drop(cache);
        rig.finish();
    });
}
