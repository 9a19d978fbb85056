import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.util.Arrays;

/** Reads a mapping by several threads, and has the virtual machine's own signals meanwhile. */
public class Maps {
    public static void main(String[] arguments) throws Exception {
        try (FileChannel file = FileChannel.open(Path.of(arguments[0]))) {
            MappedByteBuffer mapped = file.map(FileChannel.MapMode.READ_ONLY, 0, file.size());
            long[] sums = new long[8];
            Thread[] threads = new Thread[sums.length];
            for (int t = 0; t < threads.length; t++) {
                int own = t;
                threads[t] = new Thread(() -> {
                    Object nothing = null;
                    for (int at = own; at < mapped.limit(); at += 61) {
                        sums[own] = sums[own] * 31 + mapped.get(at);
                        if (at % 1024 == own)
                            try { nothing.hashCode(); } catch (NullPointerException e) { sums[own]++; }
                    }
                });
                threads[t].start();
            }
            for (Thread thread : threads)
                thread.join();
            System.gc();
            System.out.println(Arrays.toString(sums));
        }
    }
}
