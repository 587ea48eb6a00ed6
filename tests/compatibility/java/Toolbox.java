import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.utils.internals.Exit;

/**
 * Runs Kafka's own tools one after the other in one process, as a JVM is slow to start: an array of words per line in, the first of which is
 * the tool's class; {"code": .., "out": ..} out.
 */
public final class Toolbox {
    /** A tool asked to end the process. */
    private static final class Ended extends RuntimeException {
        final int code;

        Ended(int code) {
            this.code = code;
        }
    }

    private static int run(JsonNode words) throws Exception {
        String[] arguments = new String[words.size() - 1];
        for (int at = 0; at < arguments.length; at++) {
            arguments[at] = words.get(at + 1).asText();
        }
        Class<?> tool = Class.forName("org.apache.kafka.tools." + words.get(0).asText());
        try {
            tool.getMethod("main", String[].class).invoke(null, (Object) arguments);
            return 0;
        } catch (InvocationTargetException failure) {
            if (failure.getCause() instanceof Ended ended) {
                return ended.code;
            }
            System.err.println(failure.getCause());
            return 1;
        }
    }

    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        Exit.Procedure ends = (code, message) -> {
            throw new Ended(code);
        };
        Exit.setExitProcedure(ends);
        Exit.setHaltProcedure(ends);
        PrintStream answers = System.out;
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String text = in.readLine(); text != null; text = in.readLine()) {
            ByteArrayOutputStream said = new ByteArrayOutputStream();
            PrintStream out = new PrintStream(said, true, StandardCharsets.UTF_8);
            System.setOut(out);
            System.setErr(out);
            int code = run(json.readTree(text));
            ObjectNode answer = json.createObjectNode().put("code", code).put("out", said.toString(StandardCharsets.UTF_8));
            answers.println(answer);
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }
}
