import java.util.ArrayList;
import java.util.List;

/** Keeps more than the budget alive, and makes garbage meanwhile, so that the virtual machine's heap grows and moves. */
public class Heap {
    public static void main(String[] arguments) {
        int megabytes = Integer.parseInt(arguments[0]), rounds = Integer.parseInt(arguments[1]);
        List<long[]> kept = new ArrayList<>();
        long state = 88172645463325252L, sum = 0;
        for (int round = 0; round < rounds; round++) {
            while (kept.size() < megabytes * 8) {
                long[] block = new long[16 * 1024];
                for (int i = 0; i < block.length; i++) {
                    state ^= state << 13; state ^= state >>> 7; state ^= state << 17;
                    block[i] = state;
                }
                kept.add(block);
                StringBuilder garbage = new StringBuilder();
                for (int i = 0; i < 200; i++)
                    garbage.append(state + i);
                sum += garbage.toString().hashCode();
            }
            for (long[] block : kept)
                for (int i = 0; i < block.length; i += 7)
                    sum = sum * 31 + block[i];
            for (int i = 0; i < kept.size(); i += 2)
                kept.set(i, null);
            kept.removeIf(block -> block == null);
            System.gc();
        }
        System.out.println(sum + " " + kept.size());
    }
}
