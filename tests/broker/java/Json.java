import java.nio.charset.StandardCharsets;
import java.util.Map;

/** Writes JSON of maps, lists, numbers, booleans, strings and null; strings come out as ASCII. */
final class Json {
    private Json() {
    }

    static byte[] line(Object value) {
        StringBuilder out = new StringBuilder();
        write(out, value);
        return out.append('\n').toString().getBytes(StandardCharsets.US_ASCII);
    }

    private static void write(StringBuilder out, Object value) {
        if (value == null || value instanceof Boolean || value instanceof Number) {
            out.append(value);
        } else if (value instanceof Map) {
            writeMap(out, (Map<?, ?>) value);
        } else if (value instanceof Iterable) {
            char before = '[';
            for (Object item : (Iterable<?>) value) {
                out.append(before);
                write(out, item);
                before = ',';
            }
            out.append(before == '[' ? "[]" : "]");
        } else {
            writeString(out, value.toString());
        }
    }

    private static void writeMap(StringBuilder out, Map<?, ?> map) {
        char before = '{';
        for (Map.Entry<?, ?> entry : map.entrySet()) {
            out.append(before);
            writeString(out, entry.getKey().toString());
            out.append(':');
            write(out, entry.getValue());
            before = ',';
        }
        out.append(before == '{' ? "{}" : "}");
    }

    private static void writeString(StringBuilder out, String text) {
        out.append('"');
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < 0x20 || c > 0x7e) {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        out.append('"');
    }
}
